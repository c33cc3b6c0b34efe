"""Whether a set classifier is as it was registered: its files, its certificate, its signature."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from scrib_mlflow import results
from scrib_mlflow.core.certificate import Certificate, Claim
from scrib_mlflow.core.certificate.claims import recomputed_p_value
from scrib_mlflow.core.groups import LEAST_GROUPS
from scrib_mlflow.core.targets import overall_name
from scrib_mlflow.errors import ChangedModelError, InvalidSettingsError, ModelError
from scrib_mlflow.records import Base, group_targets, seal
from scrib_mlflow.registry import models, runs, seals, stores
from scrib_mlflow.registry.models import Stored
from scrib_mlflow.results import SetClassifier

SLACK = 1e-9  # numbers are computed again on other machines


class Looked(NamedTuple):
    """What a look at a registered version has shown."""

    damage: str  # what is wrong with its files, "" for nothing
    signature: tuple[bool, str]  # whether it will do, and what to say of it
    made_by: str  # the run that knows its rows, "" where this store has none


def look_for_damage(version: Base, stored: Stored, *, try_it: bool = True) -> Looked:
    """Compare a registered version with what was noted when it was registered, and try it.

    What cannot be read is an error, and what nothing confirms is damage. No file of a model is run
    before all of them are known to be those that were registered.
    """
    run_id = stores.model_info(version.uri).run_id or ""
    of_version, of_run = stores.version_tags(version), runs.read_tags(run_id)
    digest, signed = of_version.get(seals.CERTIFICATE_DIGEST, ""), seals.read_seal(of_version)
    signature = seals.check_signature(digest, signed)
    made_by = "" if of_run is None else run_id
    tags = {"the version's tag": of_version}
    if of_run is not None:
        tags["the run that made it"] = of_run
    elif signature != seals.VERIFIED:
        damage = (
            f"the run that made it ({run_id or 'it names none'}) is not in this store, so nothing "
            "confirms its tags; gate it where it was calibrated, or sign it (docs/security.md)"
        )
        return Looked(damage, signature, made_by)
    damage = find_damage(stored.record, stored.text, _noted(tags, seals.CERTIFICATE_DIGEST))
    files = _noted(tags, seals.FILES_DIGEST)
    if not damage and (results.is_sealed(stored.text) or any(files.values())):
        damage = _check_files(version.uri, files, run_id, try_it=try_it)
    return Looked(damage, signature, made_by)


def check_intact(version: Base, stored: Stored) -> None:
    """Raise unless a registered version is as it was registered, and signed if there is a key."""
    if not version.version:
        raise InvalidSettingsError(
            f"verify compares a registered version, which {version.uri} is not; give "
            "models:/NAME/VERSION, or leave verify out"
        )
    looked = look_for_damage(version, stored, try_it=False)
    fits, signature = looked.signature
    wrong = looked.damage or ("" if fits else f"its signature: {signature}")
    if wrong:
        raise ChangedModelError(f"{version.uri} is not as it was registered: {wrong}")


def _noted(tags: Mapping[str, Mapping[str, str]], key: str) -> dict[str, str]:
    return {place: each.get(key, "") for place, each in tags.items()}


def _check_files(uri: str, noted: Mapping[str, str], run_id: str, *, try_it: bool) -> str:
    """Return what is wrong with a model's files, or with what it answers; "" for nothing."""
    with seals.downloaded(uri) as folder:
        changes = seals.find_changes(seals.file_digests(folder), noted, run_id)
        if changes or not try_it:
            return changes
        try:
            models.try_example(str(folder))
        except ModelError as error:
            return str(error)
    return ""


def find_damage(record: SetClassifier, text: str, digests: Mapping[str, str]) -> str:
    """Return what shows that a stored set classifier was changed, "" for nothing.

    `digests` are those noted when it was registered, by where they stand.
    """
    for place, digest in digests.items():
        if not digest:
            return f"{place} does not say which scrib.json was registered"
        if digest != seal(text):
            return f"scrib.json is not the one that {place} names: it was changed"
    if record.certificate is None:
        return "it says certified, but holds no certificate" if record.certified else ""
    claims = {claim.name: (claim.classes, claim.target) for claim in record.certificate.claims}
    if claims != said(record):
        return "the targets of its certificate are not those that it says it keeps"
    uncapped = is_uncapped(record.certificate)  # which the check "certified" says
    if record.certified and not uncapped and not _adds_up(record, record.certificate):
        return "its counts do not give the certificate that it says it has"
    return ""


def said(record: SetClassifier) -> dict[str, tuple[tuple[str, ...], float]]:
    """Return the classes and the target of every claim that a record says it makes, by name."""
    said: dict[str, tuple[tuple[str, ...], float]] = {
        name: ((name,), target) for name, target in record.risk_targets.items()
    }
    for name, (members, target) in group_targets(record.risk_groups).items():
        said[name] = tuple(each for each in record.classes if each in members), target
    if record.overall_target is not None:
        said[overall_name(record.classes)] = record.classes, record.overall_target
    return said


def _adds_up(record: SetClassifier, certificate: Certificate) -> bool:
    """Return whether what a certificate claims follows from its own numbers."""
    test = record.path
    if test is None or test.chosen is None or not certificate.passed or not certificate.claims:
        return False
    passed = test.p_values[: test.chosen + 1]
    return (
        (record.group is None) == (certificate.n_groups is None)
        and all((record.weight is None) == (c.log_capital is None) for c in certificate.claims)
        and len(passed) > test.chosen
        and max(passed) <= certificate.level <= 1 - record.confidence + SLACK
        and abs(passed[-1] - certificate.p_value) <= SLACK
        and all(_claim_holds(claim, certificate) for claim in certificate.claims)
    )


def _claim_holds(claim: Claim, certificate: Certificate) -> bool:
    if claim.status != "certified" or not claim.p_value <= certificate.level:
        return False
    if certificate.approximate and (claim.n_groups or 0) < LEAST_GROUPS:
        return False
    if claim.group_sums is not None:
        cap = certificate.group_cap or certificate.max_group_rows or 0
        if claim.group_sums.certain > (claim.n_groups or 0) * cap + SLACK:
            return False
    return abs(recomputed_p_value(claim, certificate.level) - claim.p_value) <= SLACK


def is_uncapped(certificate: Certificate) -> bool:
    """Return whether a certificate counts groups in full by the design effect, as old ones do."""
    return certificate.approximate and certificate.group_cap is None
