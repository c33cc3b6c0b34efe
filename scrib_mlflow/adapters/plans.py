"""What can be certified, in words."""

from __future__ import annotations

from scrib_mlflow.adapters.texts import percent
from scrib_mlflow.core.plan import Plan
from scrib_mlflow.core.tally import LEAST_GROUPS

MOST_REASONS = 8


def plan_rows(plan: Plan) -> list[tuple[str, ...]]:
    """Return what can be certified, class by class."""
    return [
        (
            "class",
            "certify rows",
            "target",
            "least possible",
            "certain rows needed",
            f"for {percent(plan.wanted)}",
            "expected",
            "chance",
        ),
        *(
            (
                each.name,
                f"{each.n:,}",
                percent(each.target),
                percent(each.least_target),
                f"{each.least_rows:,}",
                "-" if each.rows_for_chance is None else f"{each.rows_for_chance:,}",
                f"{each.n_certain:,}",
                percent(each.chance),
            )
            for each in plan.by_class
        ),
    ]


def plan_sentence(plan: Plan) -> str:
    """Return in a sentence what can be hoped for."""
    hopeless = [each for each in plan.by_class if not each.least_target <= each.target]
    if hopeless:
        told = [
            f"{each.name} ({each.n:,} certify rows; {percent(each.least_target)} is the lowest "
            "target that they can certify)"
            for each in hopeless[:MOST_REASONS]
        ]
        more = f" and {len(hopeless) - MOST_REASONS} more" if len(hopeless) > MOST_REASONS else ""
        return f"the plan: nothing can be certified, because of {'; '.join(told)}{more}"
    groups = max([LEAST_GROUPS, *(each.least_rows for each in plan.by_class)])
    if plan.n_groups is not None and plan.n_groups < groups:
        return (
            f"the plan: nothing can be certified with {plan.n_groups} groups among the certify "
            f"rows; about {groups} are needed"
        )
    share = plan.by_class[0].assumed_risk / plan.by_class[0].target if plan.by_class else 0.0
    return (
        f"the plan: all targets pass with a chance of {percent(plan.chance)} if each class "
        f"abstains on {percent(plan.abstention)} of its rows and is wrong {share:g} times as often "
        "as allowed"
    )
