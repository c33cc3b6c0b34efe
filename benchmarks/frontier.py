"""Frontiers: time, how far warm starts are from fits from scratch, and whether predictions hold."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator

import numpy as np

from benchmarks.datasets import NOISES, load_kernels
from benchmarks.tables import print_table, progress
from scrib_mlflow import certify_path, draw_path, fit_optimal, fit_thresholds, predict_sets
from scrib_mlflow.core.certificate import tally_sets
from scrib_mlflow.core.inputs import check_rows, count_threads
from scrib_mlflow.core.loss import Problem
from scrib_mlflow.core.studies import TargetFrontier, draw_frontier
from scrib_mlflow.core.studies.sweeps import fit_optimal_along, fit_thresholds_along, make_sweeps
from scrib_mlflow.core.targets import Targets, make_constraints
from scrib_mlflow.synthetic import draw_scores

ROWS, POINTS = 50_000, 30
COMPARED = 60  # points that are fitted from scratch as well
TARGET = 0.1
SPLITS = (3_000, 7_000)  # rows to fit and to certify, of a prediction that is put to the test
REPEATS = 40


def run(*, quick: bool) -> None:
    """Print all tables."""
    load_kernels()
    _times(quick=quick)
    _excess(quick=quick)
    _predictions(REPEATS // 4 if quick else REPEATS)


def _times(*, quick: bool) -> None:
    """Print seconds of a frontier, and as a ratio to one default fit of the same rows."""
    lines = []
    for noise, sd in list(NOISES.items())[: 1 if quick else 2]:
        scores, labels = draw_scores(ROWS, noise=sd)
        for rule, fit in (("thresholds", fit_thresholds), ("optimal", fit_optimal)):
            progress(f"frontier: times, {noise}, {rule}")
            started = time.perf_counter()
            fit(scores, labels)
            one = time.perf_counter() - started
            started, cpu = time.perf_counter(), time.process_time()
            draw_frontier(scores, labels, TARGET, rule=rule, certify_rows=ROWS, points=POINTS)
            wall, cpu = time.perf_counter() - started, time.process_time() - cpu
            cells = [f"{wall:.1f}", f"{cpu:.1f}", f"{wall / one:.1f}"]
            lines.append([f"{noise}, {rule}", *cells])
    print_table(
        f"A frontier of {ROWS:,} rows, K = 5, {POINTS} targets in each of 6 sweeps",
        ["data, rule", "seconds", "CPU seconds", "fits of all rows"],
        lines,
    )


def _excess(*, quick: bool) -> None:
    """Print how far losses along targets are above those of default fits from scratch."""
    lines = []
    for noise, sd in list(NOISES.items())[: 1 if quick else 2]:
        scores, labels = draw_scores(ROWS // 2, noise=sd)
        rows = check_rows(scores, labels, None, None)
        constraints = make_constraints(Targets(risk_targets=TARGET), rows.classes)
        problem = Problem(rows=rows, constraints=constraints)
        asked = make_sweeps(rows, constraints, points=POINTS, lowest=0.01, highest=0.5)
        for rule in ("thresholds", "optimal"):
            progress(f"frontier: excess, {noise}, {rule}")
            threads = count_threads(None)
            if rule == "optimal":
                placed = fit_optimal_along(problem, asked, frozenset(), 0, threads, None)
            else:
                placed = fit_thresholds_along(problem, asked, 0, threads, None)
            pairs = [
                (each, at)
                for sweep, row in zip(asked.sweeps, placed, strict=True)
                for each, at in zip(sweep, row, strict=True)
            ]
            chosen = np.linspace(0, len(pairs) - 1, COMPARED // (4 if quick else 1)).astype(int)
            found = []
            for each, at in (pairs[j] for j in chosen):
                targets = {constraint.name: constraint.target for constraint in each.constraints}
                fit = fit_optimal if rule == "optimal" else fit_thresholds
                found.append((at.loss, fit(scores, labels, targets).loss))
            losses = np.array(found)
            points = 100 * (losses[:, 0] - losses[:, 1])
            share = points / np.maximum(losses[:, 1], 0.01)
            figures = [points.mean(), points.max(), points.min(), share.mean(), share.max()]
            lines.append([f"{noise}, {rule}", *(f"{figure:.2f}" for figure in figures)])
    print_table(
        f"Loss along targets above a default fit from scratch, {ROWS // 2:,} rows: points of 0.01, "
        "and percent",
        ["data, rule", "mean", "most", "least", "mean %", "most %"],
        lines,
    )


def _predictions(repeats: int) -> None:
    """Print how often what was predicted to be certifiable was then certified."""
    lines = []
    for rule in ("thresholds", "optimal"):
        progress(f"frontier: predictions, {rule}")
        asked: dict[str, list[tuple[bool, float, float]]] = {"lowest": [], "chosen": []}
        for seed in range(repeats):
            for which, target, abstention in _tried(seed, rule):
                asked[which].append((*_certify(seed, rule, target), abstention))
        for which, done in asked.items():
            passed = [each for each in done if each[0]]
            shares = [f"{len(passed)} of {len(done)}"]
            for column in (2, 1):  # predicted, then found
                values = [each[column] for each in passed]
                shares.append(f"{100 * np.mean(values):.1f} %" if values else "-")
            lines.append([f"{rule}, {which} target", *shares])
    print_table(
        f"Targets predicted to be certifiable with a chance of 80 %, {SPLITS[0]:,} fit rows and "
        f"{SPLITS[1]:,} certify rows, noise sd 3",
        ["rule, target", "certified", "abstention predicted", "found"],
        lines,
    )


def _rows(seed: int) -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    scores, labels = draw_scores(sum(SPLITS), seed=1000 + seed)
    n = SPLITS[0]
    return (scores[:n], labels[:n]), (scores[n:], labels[n:])


def _tried(seed: int, rule: str) -> Iterator[tuple[str, float, float]]:
    """Yield targets that are predicted to be certifiable: the lowest, and the chosen one."""
    fit, _ = _rows(seed)
    found: TargetFrontier = draw_frontier(
        *fit, TARGET, rule=rule, certify_rows=SPLITS[1], points=12, lowest=0.02, highest=0.3
    )
    able = [each for each in found.certifiable if not math.isnan(each.abstention_rate)]
    if able:
        yield "lowest", able[0].target, able[0].abstention_rate
    for each in able:
        if each.target == TARGET:
            yield "chosen", each.target, each.abstention_rate


def _certify(seed: int, rule: str, target: float) -> tuple[bool, float]:
    """Return whether a calibration certifies a target, and how often it then abstains."""
    fit, (scores, labels) = _rows(seed)
    path = draw_path(*fit, target, rule=rule, certify_rows=SPLITS[1])
    claims = make_constraints(Targets(risk_targets=target), path.classes)
    found = certify_path(
        (tally_sets(predict_sets(scores, step.rule), labels, claims) for step in path.steps),
        claims,
        path.classes,
        level=0.05,
    )
    sets = predict_sets(scores, path.steps[found.chosen or 0].rule)
    return found.certificate.passed, float(np.mean(sets.sum(axis=1) != 1))
