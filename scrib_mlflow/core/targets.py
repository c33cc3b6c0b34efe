"""Targets as users give them, and the constraints that they mean.

A constraint is a rate over the rows of some classes. Constraints on risks are claims: what a
certificate proves.

In a mapping by class `default` is the word for all classes without a number of their own. A class
may be called so too: `=default` is that class, in mappings only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from scrib_mlflow.core.inputs import Floats, Ints
from scrib_mlflow.errors import InvalidTargetsError
from scrib_mlflow.messages import nearest, share_hint

RuleName = Literal["thresholds", "optimal"]
AnswerName = Literal["top", "any"]  # the class with the highest score only, or any class
Kind = Literal["risk", "miscoverage", "abstention"]
Target = float | Mapping[str, float]
DEFAULT, OVERALL = "default", "overall"
CLASS_DEFAULT = f"={DEFAULT}"  # in a mapping: the class of that name


@dataclass(frozen=True, slots=True, kw_only=True)
class Constraint:
    """A rate over some classes that shall not exceed its target, and what an excess costs.

    `risk` is wrong among the certain, `miscoverage` the true class not in the set, `abstention`
    not certain; each over the rows of the classes taken together.
    """

    name: str
    kind: Kind
    classes: tuple[int, ...]
    target: float
    penalty: float
    two_sided_penalty: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Targets:
    """Targets as users give them; see `fit_thresholds`."""

    risk_targets: Target | None = 0.1
    overall_target: float | None = None
    risk_groups: Mapping[str, tuple[Sequence[str], float]] | None = None
    miscoverage_targets: Target | None = None
    max_class_abstention: Target | None = None
    waive: Sequence[str] = ()
    penalty: Target = 1e4
    two_sided_penalty: Target = 0.0


def claimed(constraints: Sequence[Constraint]) -> list[Constraint]:
    """Return the constraints that are claims."""
    return [constraint for constraint in constraints if constraint.kind == "risk"]


def claim_targets(constraints: Sequence[Constraint]) -> Floats:
    """Return the target of each claim."""
    return np.array([constraint.target for constraint in claimed(constraints)])


def claim_members(constraints: Sequence[Constraint], k: int) -> Ints:
    """Return 1 where a class (k) belongs to a claim (c)."""
    members = [np.isin(np.arange(k), constraint.classes) for constraint in claimed(constraints)]
    return np.array(members, dtype=np.int64).reshape(-1, k)


def overall_name(classes: Sequence[str]) -> str:
    """Return the name of the claim about all classes together, one that no class has."""
    name = OVERALL
    while name in classes:
        name = f"{name} (all classes)"
    return name


def own_targets(by_name: Target | None) -> frozenset[str]:
    """Return the classes whose number is given by name."""
    if not isinstance(by_name, Mapping):
        return frozenset()
    names = {str(name) for name in by_name} - {DEFAULT}
    return frozenset(DEFAULT if name == CLASS_DEFAULT else name for name in names)


def as_written(by_class: Mapping[str, float]) -> dict[str, float]:
    """Return numbers by class as a mapping of an option has them."""
    return {CLASS_DEFAULT if n == DEFAULT else n: number for n, number in by_class.items()}


def as_given(
    by_class: Mapping[str, float], risk_targets: Target | None, classes: Sequence[str]
) -> Target | None:
    """Return targets of classes by name where they were given so, the others by default."""
    if not by_class:
        return None
    named = own_targets(risk_targets)
    usual = Counter(target for name, target in by_class.items() if name not in named)
    default = usual.most_common(1)[0][0] if usual else None
    own = as_written({n: t for n, t in by_class.items() if n in named or t != default})
    if default is None:
        return own
    if DEFAULT in classes:  # which the word alone would leave open
        own.setdefault(CLASS_DEFAULT, default)
    return own | {DEFAULT: default}


def make_constraints(targets: Targets, classes: tuple[str, ...]) -> tuple[Constraint, ...]:
    """Return the constraints that the targets mean, or say what is wrong with them."""
    waived = known_classes("waive", targets.waive, classes)
    groups = _groups(targets, classes)
    kind: Kind = "risk"
    by_class = by_name("risk_targets", targets.risk_targets, classes)
    if targets.miscoverage_targets is not None:
        kind = "miscoverage"
        by_class = by_name("miscoverage_targets", targets.miscoverage_targets, classes)
    wanted: list[tuple[str, Kind, tuple[int, ...], float]] = [
        (classes[j], kind, (j,), target) for j, target in by_class.items() if j not in waived
    ]
    if targets.overall_target is not None:
        target = _rate("overall_target", targets.overall_target)
        wanted.append((overall_name(classes), "risk", tuple(range(len(classes))), target))
    for name, (members, value) in groups.items():
        option = f"risk_groups[{name!r}]"
        wanted.append((name, "risk", known_classes(option, members, classes), _rate(option, value)))
    covered = {j for _, _, members, _ in wanted for j in members} | set(waived)
    missing = [name for j, name in enumerate(classes) if j not in covered]
    if missing:
        raise InvalidTargetsError(
            f"no target covers class {missing[0]!r}; "
            "give it one, add a 'default', an overall_target, or waive it by name"
        )
    caps = by_name("max_class_abstention", targets.max_class_abstention, classes)
    wanted += [(classes[j], "abstention", (j,), cap) for j, cap in caps.items() if j not in waived]
    names = dict.fromkeys([*classes, *(name for name, *_ in wanted)])
    costs = _amounts("penalty", targets.penalty, names)
    both = _amounts("two_sided_penalty", targets.two_sided_penalty, names)
    return tuple(
        Constraint(
            name=name,
            kind=what,
            classes=members,
            target=target,
            penalty=costs[name],
            two_sided_penalty=both[name],
        )
        for name, what, members, target in wanted
    )


def by_name(option: str, value: Target | None, classes: tuple[str, ...]) -> dict[int, float]:
    """Return rates by class index from a number or a mapping by name, with or without a default."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        rate = _rate(option, value)
        return dict.fromkeys(range(len(classes)), rate)
    named = {str(name): rate for name, rate in value.items()}
    if len(named) < len(value):
        raise InvalidTargetsError(
            f"{option} names a class twice: {list(value)} are the same as text"
        )
    named, rest = _split(option, named, classes)
    known_classes(option, list(named), classes)
    rates = {name: _rate(f"{option}[{name!r}]", rate) for name, rate in named.items()}
    if rest is not None:
        rates = dict.fromkeys(classes, _rate(f"{option}['default']", rest)) | rates
    return {j: rates[name] for j, name in enumerate(classes) if name in rates}


def _split(
    option: str, named: Mapping[str, float], classes: Sequence[str]
) -> tuple[dict[str, float], float | None]:
    """Return what a mapping says of each class that it names, and what of the others."""
    own, rest = dict(named), named.get(DEFAULT)
    own.pop(DEFAULT, None)
    if DEFAULT not in classes:
        return own, rest
    if CLASS_DEFAULT in own:
        own[DEFAULT] = own.pop(CLASS_DEFAULT)
    elif rest is not None and {*classes} - {*own} != {DEFAULT}:
        raise InvalidTargetsError(
            f"{option} has {DEFAULT!r}, which is a class here, and the word for all classes that "
            f"are not named; write {CLASS_DEFAULT!r} for the class, and {DEFAULT!r} beside it for "
            "the others"
        )
    return own, rest


def enforced(targets: Target, classes: tuple[str, ...], waive: Sequence[str]) -> dict[str, float]:
    """Return the targets of the classes that are not waived, by name."""
    rates = by_name("risk_targets", targets, classes)
    return {classes[j]: rate for j, rate in rates.items() if classes[j] not in waive}


def known_classes(option: str, names: Sequence[str], classes: tuple[str, ...]) -> tuple[int, ...]:
    """Return the indices of classes that an option names."""
    if isinstance(names, str):
        names = (names,)
    if not isinstance(names, Iterable):
        raise InvalidTargetsError(f"{option} is {names!r}, but must be a list of class names")
    for name in map(str, names):
        if name not in classes:
            raise InvalidTargetsError(
                f"{option} names the unknown class {name!r}; {nearest(name, classes)}"
            )
    return tuple(sorted({classes.index(str(name)) for name in names}))


def _rate(option: str, value: object) -> float:
    number = _number(option, value)
    if not 0 < number < 1:
        raise InvalidTargetsError(
            f"{option} is {number:g}, but a target lies between 0 and 1; "
            f"{share_hint(number, '') or '0.1 allows 10 %'}"
        )
    return number


def _amounts(option: str, value: Target, names: Collection[str]) -> dict[str, float]:
    """Return the amount of every name."""
    named = value if isinstance(value, Mapping) else {DEFAULT: value}
    amounts = {str(name): _number(f"{option}[{name!r}]", amount) for name, amount in named.items()}
    if DEFAULT not in amounts:
        raise InvalidTargetsError(f"{option} has no 'default'; add one, such as 'default': 1e4")
    known = [*names, *([CLASS_DEFAULT] if DEFAULT in names else [])]
    for name, amount in amounts.items():
        if name != DEFAULT and name not in known:
            raise InvalidTargetsError(
                f"{option} names {name!r}, no class and no group; {nearest(name, known)}"
            )
        if not 0 <= amount < float("inf"):
            raise InvalidTargetsError(
                f"{option}[{name!r}] is {amount:g}, but must be finite and not negative"
            )
    rest = amounts.pop(DEFAULT)
    if DEFAULT in names:
        amounts[DEFAULT] = amounts.pop(CLASS_DEFAULT, rest)
    return dict.fromkeys(names, rest) | amounts


def _number(option: str, value: object) -> float:
    try:
        return float(value)  # type: ignore[arg-type]  # what is no number raises
    except (TypeError, ValueError) as error:
        raise InvalidTargetsError(f"{option} is {value!r}, but must be a number") from error


def _groups(targets: Targets, classes: tuple[str, ...]) -> dict[str, tuple[Sequence[str], float]]:
    """Return the risk groups, each the names of its classes and its target."""
    taken = {*classes, DEFAULT, CLASS_DEFAULT, OVERALL, overall_name(classes)}
    groups = {}
    for name, group in dict(targets.risk_groups or {}).items():
        try:
            members, value = group
        except (TypeError, ValueError) as error:
            raise InvalidTargetsError(
                f"risk_groups[{name!r}] is {group!r}, but must be (class names, target)"
            ) from error
        if not members:
            raise InvalidTargetsError(
                f"risk_groups[{name!r}] names no class; name those whose rows count together"
            )
        if str(name) in taken:
            raise InvalidTargetsError(
                f"risk_groups has a group named {name!r}, which is a class or a word for classes; "
                "take another name"
            )
        groups[str(name)] = members, value
    return groups
