"""Rows that two parts share, told from rows that are equal by chance."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special

from scrib_mlflow.core.bounds import risk_upper
from scrib_mlflow.core.inputs import fill_rows, is_among, sorted_values, take_rows

UNLIKELY = 1e-6  # chance below which shared rows are no chance


class Overlap(NamedTuple):
    """How many of some fresh rows equal rows that were used before."""

    n_shared: int
    n_rows: int  # fresh rows compared
    expected: float  # chance that an independent row equals a used one
    excessive: bool  # more are shared than chance explains


def compare_rows(known: NDArray[np.uint64], fresh: NDArray[np.uint64], modulus: int = 1) -> Overlap:
    """Count fresh rows among known ones, which may have been thinned, and judge the number.

    Rows can be equal by chance, such as votes of a committee. How often, the known rows tell: a
    further row is new about as often as a known row has no equal (Good and Turing). More shared
    rows than the highest plausible chance explains are rows that were used before; both ways are
    tested, because few known rows say little of chance.
    """
    known, fresh = multiples(known, modulus), multiples(fresh, modulus)
    return Overlap(
        n_shared=count_shared(known, fresh),
        n_rows=len(fresh),
        expected=_repeated(known) / max(len(known), 1),
        excessive=_too_many(known, fresh) or _too_many(fresh, known),
    )


def _too_many(known: NDArray[np.uint64], rows: NDArray[np.uint64]) -> bool:
    """Return whether more rows stand among known ones than the repeats of these explain."""
    shared = count_shared(known, rows)
    chance = float(risk_upper(_repeated(known), len(known), 1 - UNLIKELY))
    return shared > 0 and bool(special.bdtrc(shared - 1, len(rows), chance) <= UNLIKELY)


def _repeated(hashes: NDArray[np.uint64]) -> int:
    """Return how many rows have an equal one."""
    ordered = sorted_values(hashes)
    same = np.r_[False, ordered[1:] == ordered[:-1], False]
    return int(np.count_nonzero(same[1:] | same[:-1])) if len(hashes) else 0


def count_shared(seen: NDArray[np.uint64], hashes: NDArray[np.uint64]) -> int:
    """Return how many rows stand among those seen."""
    return int(np.count_nonzero(is_among(hashes, sorted_values(seen))))


def multiples(hashes: NDArray[np.uint64], modulus: int) -> NDArray[np.uint64]:
    """Return the hashes that a modulus keeps."""
    kept = fill_rows(len(hashes), np.bool_, lambda of: hashes[of] % np.uint64(modulus) == 0)
    return take_rows(hashes, kept)
