"""A split made by an earlier release is the same today: hashes and splits of fixed rows."""

import numpy as np
import pandas as pd

from scrib_mlflow.core.certificate import split_rows
from scrib_mlflow.rows import hashes
from tests.models import case_hashes, digest

ROWS = pd.DataFrame(
    {
        "number": [0.5, -1.0, 3.25, np.nan, 0.0, 1e300, 7.0, 8.0, 9.5, 10.0, 11.0, 12.5],
        "whole": np.arange(12),
        "text": ["a", "ä", "", None, "1", "true", "x y", "z", "a", "b", "c", "d"],
        "truth": [True, False] * 6,
        "kind": pd.Categorical(["u", "v", "w"] * 4),
    }
)
LABELS = np.array([0, 1, 2] * 4)
GROUPS = pd.Series([f"p{i // 2}" for i in range(12)])


def test_hashes_of_rows_are_those_of_earlier_releases():
    rows = [14469560696826472325, 9100387870362010691, 13388508860107589447, 14256126752626778131]
    cases = [4046217629126375509, 4299327297126358207, 13396948332015299726, 7105667155897781681]
    assert hashes.row_hashes(ROWS)[:4].tolist() == rows
    assert case_hashes(ROWS, LABELS)[:4].tolist() == cases
    assert digest(ROWS) == "78465138d55a243e7e782d323f82b27b"


def test_splits_of_rows_are_those_of_earlier_releases():
    rows = hashes.row_hashes(ROWS)
    assert np.flatnonzero(split_rows(rows, LABELS, 0.7, 0)).tolist() == [1, 2, 3, 4, 5, 6, 7, 8, 9]
    assert np.flatnonzero(split_rows(rows, LABELS, 0.5, 3)).tolist() == [0, 3, 4, 5, 7, 8]


def test_splits_of_groups_are_those_of_earlier_releases():
    groups = hashes.key_hashes(GROUPS)
    assert groups[::6].tolist() == [17505633422984121388, 8315906459123792015]
    labels = np.zeros(12, dtype=np.int64)
    certify = split_rows(hashes.row_hashes(ROWS), labels, 0.7, 0, groups=groups)
    assert np.flatnonzero(certify).tolist() == [0, 1, 2, 3, 4, 5, 8, 9]
