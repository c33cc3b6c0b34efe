"""A plan in words and in a figure: what can be certified, before anything is fitted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrib_mlflow.core.certificate import Plan
from scrib_mlflow.core.groups import LEAST_GROUPS
from scrib_mlflow.messages import percent
from scrib_mlflow.report.facts import Summary, TextTable
from scrib_mlflow.report.words import say, say_each, visible

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def plan_table(plan: Plan) -> TextTable:
    """Return what can be certified, class by class."""
    header = ("class", "certify rows", "target", "least possible", "certain rows needed")
    wanted = f"for {percent(plan.wanted)}"
    chances = [each.chance for each in plan.by_class]
    return TextTable(
        rows=(
            (*header, wanted, "expected", "chance"),
            *(
                (
                    visible(each.name),
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
        ),
        order=tuple(sorted(range(len(chances)), key=chances.__getitem__)),
        folded="The {n} of {all} classes that are least likely to pass; plan.json has all.",
    )


def plan_sentence(plan: Plan) -> str:
    """Return in a sentence what can be hoped for."""
    values = {"hopeless": _hopeless(plan), "groups": _groups_needed(plan), "share": _share(plan)}
    return say("plan.verdict", plan=plan, **values)


def impossible(plan: Plan) -> bool:
    """Return whether nothing can be certified, however good the model is."""
    few = plan.n_groups is not None and plan.n_groups < _groups_needed(plan)
    return few or bool(_hopeless(plan))


def _hopeless(plan: Plan) -> list[str]:
    return [
        f"{each.name} (its {each.n:,} certify rows can certify {percent(each.least_target)} "
        "at best)"
        for each in plan.by_class
        if not each.least_target <= each.target
    ]


def _groups_needed(plan: Plan) -> int:
    return max([LEAST_GROUPS, *(each.least_rows for each in plan.by_class)])


def _share(plan: Plan) -> float:
    return plan.by_class[0].assumed_risk / plan.by_class[0].target if plan.by_class else 0.0


def plan_summary(plan: Plan, where: str) -> Summary:
    """Return what is printed and noted of a plan."""
    return Summary(
        verdict=plan_sentence(plan),
        sentences=tuple(say_each("plan.groups", plan=plan)),
        tables=(plan_table(plan),),
        legend=tuple(say_each("plan.legend", plan=plan, share=_share(plan))),
        where=where,
    )


def plan_figure(plan: Plan) -> Figure:
    """Return, for every class, its target beside the lowest that its certify rows can certify."""
    from scrib_mlflow.report import figures  # noqa: PLC0415  # loads matplotlib

    hardest = sorted(plan.by_class, key=lambda each: each.target - each.least_target)
    shown = [each for each in plan.by_class if each in hardest[: figures.MOST_CLASSES]]
    assumed = f"abstention {100 * plan.abstention:g} %, confidence {100 * plan.confidence:g} %"
    title = f"What can be certified, at an assumed {assumed}"
    figure, places, targets, chances = figures.bars([each.name for each in shown], title)
    least = [100 * each.least_target for each in shown]
    targets.barh(places, least, color=figures.GREY, height=0.6, label="cannot be certified")
    figures.mark_targets(targets, [each.target for each in shown])
    targets.set_xlabel("target, %")
    chances.barh(places, [100 * each.chance for each in shown], color=figures.BLUE, height=0.6)
    chances.set_xlabel("chance of passing, %")
    figures.legend(figure, [targets], ncols=2)
    return figure
