"""Digests, and rows that two tables share."""

import hashlib
import struct
from datetime import date
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest

from scrib_mlflow.core.certificate import overlap
from scrib_mlflow.core.inputs import hash_names
from scrib_mlflow.errors import InvalidDataError
from scrib_mlflow.rows import hashes
from tests.models import case_hashes, digest, read_table
from tests.rows.test_tables import ROWS


def test_a_digest_depends_on_every_row_and_on_no_order():
    rows = pd.DataFrame({"x": np.arange(30_000.0), "s": ["a", "b", "c"] * 10_000})
    changed = rows.assign(x=rows["x"].where(rows.index != 20_001, -1.0))
    assert digest(rows) != digest(changed)
    shuffled = rows.sample(frac=1, random_state=0)[["s", "x"]]
    assert digest(rows) == digest(shuffled)
    assert digest(rows) != digest(rows.rename(columns={"x": "z"}))
    assert digest(rows) != digest(pd.concat([rows, rows.head(1)]))


def test_the_digest_of_a_table_follows_from_sums_over_its_parts():
    rows = pd.DataFrame({"x": [1.0, np.nan, 3.0, 4.0], "b": [True, None, False, None]})
    parts = [rows.iloc[:1], rows.iloc[1:2], rows.iloc[2:]]
    sums = sum(hashes.digest_sums(hashes.row_hashes(part)) for part in parts)
    assert hashes.digest_of(["b", "x"], sums) == digest(rows)
    twice = pd.concat([rows.head(1)] * 2 + [rows.tail(1)] * 2)
    assert digest(twice) != digest(pd.concat([rows.head(1), rows.tail(1)]))


def test_labels_are_hashed_as_text_where_asked():
    found = [
        hashes.row_hashes(pd.DataFrame({"x": 0.5, "y": labels}), text=["y"]).tolist()
        for labels in ([1, 2], [1.0, 2.0], ["1", "2"])
    ]
    assert found[0] == found[1] == found[2]
    assert found[0] != hashes.row_hashes(pd.DataFrame({"x": 0.5, "y": [1, 2]})).tolist()


def test_more_rows_are_thinned_further_and_still_comparable():
    assert [hashes.thinning(n) for n in (1, 10**6, 10**6 + 1, 16 * 10**6, 10**9)] == [
        1,
        1,
        16,
        16,
        4096,
    ]


def test_a_digest_does_not_depend_on_the_kind_of_file(tmp_path):
    ROWS.to_csv(tmp_path / "rows.csv", index=False)
    ROWS.to_parquet(tmp_path / "rows.parquet")
    found = {
        digest(read_table("data", str(tmp_path / name), "y"))
        for name in ("rows.csv", "rows.parquet")
    }
    assert len(found) == 1


def test_a_digest_tells_a_value_from_the_same_value_in_another_column():
    left = pd.DataFrame({"a": [1.0, 2.0], "b": [2.0, 1.0]})
    right = pd.DataFrame({"a": [1.0, 2.0], "b": [1.0, 2.0]})
    assert digest(left) != digest(right)


def test_shared_rows_are_counted_by_what_the_model_is_given_and_the_class():
    rows = pd.DataFrame({"x": [0.1, 0.2, 0.3], "s": ["a", "b", "c"]})
    seen = case_hashes(rows, np.array([0, 1, 2]))
    again = case_hashes(rows[["s", "x"]].iloc[[2, 0]], np.array([2, 1]))
    assert overlap.count_shared(seen, again) == 1  # the other has another class
    narrow = case_hashes(rows.astype({"x": np.float32}), np.array([0, 1, 2]))
    assert overlap.count_shared(seen, narrow) == 3


MASK = 2**64 - 1


def naive_mix(value):
    value = (value + 0x9E3779B97F4A7C15) & MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & MASK
    return value ^ (value >> 31)


def naive_text(text):
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")


def naive_number(number):
    return struct.unpack("<Q", struct.pack("<d", number))[0]


def test_a_row_hash_is_defined_without_pandas():
    rows = pd.DataFrame(
        {
            "x": [1.5, -0.0, np.nan],
            "n": [1, 2, 3],
            "s": ["a", None, "\u00e9"],
            "b": [True, False, True],
        }
    )
    missing = int(hashes.MISSING)
    wanted = [
        {"x": naive_number(1.5), "n": naive_number(1), "s": naive_text("a"), "b": naive_number(1)},
        {"x": naive_number(0), "n": naive_number(2), "s": missing, "b": naive_number(0)},
        {"x": missing, "n": naive_number(3), "s": naive_text("\u00e9"), "b": naive_number(1)},
    ]
    sums = [
        sum(naive_mix(value ^ naive_text(name)) for name, value in row.items()) for row in wanted
    ]
    assert hashes.row_hashes(rows).tolist() == [naive_mix(total & MASK) for total in sums]


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (pd.Series([1, 2, 3]), pd.Series([1.0, 2.0, 3.0])),
        (pd.Series([1, 0, 1]), pd.Series([True, False, True])),
        (pd.Series([1, None, 3], dtype="Int64"), pd.Series([1, np.nan, 3])),
        (pd.Series([True, None], dtype="boolean"), pd.Series([1.0, np.nan])),
        (pd.Series([0.0, 1.0]), pd.Series([-0.0, 1.0])),
        (pd.Series([None, None], dtype=object), pd.Series([np.nan, np.nan])),
        (pd.Series(["a", "b"]), pd.Series(["a", "b"], dtype="category")),
        (pd.Series(["a", None]), pd.Series(["a", pd.NA], dtype="string")),
        (pd.Series(pd.to_datetime(["2026-01-02"])), pd.Series(["2026-01-02"])),
        (pd.Series([date(2026, 1, 2)]), pd.Series(["2026-01-02"])),
        (pd.Series([Decimal("1.5")]), pd.Series(["1.5"])),
    ],
)
def test_the_same_values_in_other_types_are_the_same_rows(left, right):
    found = [hashes.row_hashes(pd.DataFrame({"x": column})) for column in (left, right)]
    assert (found[0] == found[1]).all()


def test_different_rows_have_different_hashes_that_are_spread_evenly():
    rows = pd.DataFrame({"x": np.arange(100_000), "y": np.arange(100_000) % 7})
    found = hashes.row_hashes(rows)
    assert len(np.unique(found)) == len(rows)
    for bits in (found % np.uint64(16), found >> np.uint64(60)):
        assert np.bincount(bits.astype(int), minlength=16).min() > 5_900
    assert hashes.row_hashes(rows.rename(columns={"x": "y", "y": "x"}))[9] != found[9]
    assert len(hashes.row_hashes(rows.head(0))) == 0


def test_float32_rows_are_equal_only_where_asked():
    rows = pd.DataFrame({"x": np.random.default_rng(0).normal(size=100), "big": 1e300})
    narrow = rows.astype({"x": np.float32})
    assert (hashes.row_hashes(rows, np.float32) == hashes.row_hashes(narrow, np.float32)).all()
    assert (hashes.row_hashes(rows) != hashes.row_hashes(narrow)).all()


@pytest.mark.parametrize(
    "column",
    [
        pd.Series([7.0, 8.0]),
        pd.Series([7.0, 8.0], dtype=np.float32),
        pd.Series(["7", "8"]),
        pd.Series([7, "8"], dtype=object),
        pd.Series([np.float32(7), 8], dtype=object),
        pd.Series([7, 8], dtype="Int64"),
        pd.Series(["7", "8"], dtype="category"),
    ],
)
def test_a_key_is_the_same_as_number_and_as_text(column):
    assert (hashes.key_hashes(column) == hashes.key_hashes(pd.Series([7, 8]))).all()


def test_keys_differ_as_texts_do():
    column = pd.Series(
        ["7", "7.0", "007", 7.5, "", "True", "seven", 2**53, 2**53 + 1], dtype=object
    )
    assert len(np.unique(hashes.key_hashes(column))) == len(column)


@pytest.mark.parametrize("missing", [None, np.nan, pd.NA])
def test_rows_without_a_key_are_refused(missing):
    column = pd.Series(["a", "b", missing], dtype=object, name="patient")
    with pytest.raises(InvalidDataError, match="'patient' has no value in row 2"):
        hashes.key_hashes(column)


def votes(n, seed):
    """Return rows of a committee: shares of 20 votes among three classes, and the class."""
    random = np.random.default_rng(seed)
    labels = random.integers(0, 3, n)
    scores = random.multinomial(20, [1 / 3] * 3, n) / 20
    return case_hashes(pd.DataFrame(scores, columns=list("abc")), labels)


def test_rows_that_are_equal_by_chance_are_no_overlap():
    rows = votes(20_000, 0)
    known, fresh = rows[::2], rows[1::2]
    found = overlap.compare_rows(known, fresh)
    assert 0.97 < found.n_shared / found.n_rows < 1
    assert found.expected == pytest.approx(found.n_shared / found.n_rows, abs=0.01)
    assert not found.excessive


def test_the_same_rows_again_are_too_many_even_where_chance_explains_most():
    known = votes(20_000, 0)
    again = overlap.compare_rows(known, known)
    assert again.n_shared == again.n_rows == 20_000
    assert again.excessive


@pytest.mark.parametrize(("leaked", "excessive"), [(0, False), (1, False), (100, True)])
def test_rows_that_never_repeat_are_known_again(leaked, excessive):
    random = np.random.default_rng(0)
    known, fresh = random.integers(0, 2**64, (2, 1_000), dtype=np.uint64)
    fresh[:leaked] = known[:leaked]
    found = overlap.compare_rows(known, fresh)
    assert found == (leaked, 1_000, 0.0, excessive)


def test_nothing_is_shared_with_no_rows():
    some, none = votes(100, 0), np.zeros(0, dtype=np.uint64)
    assert overlap.compare_rows(none, some) == (0, 100, 0.0, False)
    assert overlap.compare_rows(some, none)[:2] == (0, 0)


def test_of_many_rows_a_fixed_part_is_kept_and_compared():
    random = np.random.default_rng(0)
    known = random.integers(0, 2**64, 1_000_001, dtype=np.uint64)
    kept, modulus = hashes.thin(known)
    assert modulus == 16
    assert len(kept) == pytest.approx(1_000_001 / 16, rel=0.02)
    assert set(kept.tolist()) <= set(known.tolist())
    few, one = hashes.thin(known[1:])
    assert (len(few), one) == (1_000_000, 1)
    again = overlap.compare_rows(kept, known[:500_000], modulus)
    assert again.n_shared == again.n_rows == (known[:500_000] % np.uint64(16) == 0).sum()
    assert again.excessive
    other = random.integers(0, 2**64, 100_000, dtype=np.uint64)
    assert not overlap.compare_rows(kept, other, modulus).n_shared


@pytest.mark.parametrize(
    "values",
    [
        [7, 8, -1],
        [7.0, 7.5, 1e300],
        ["7", "007", "é"],
        [True, False],
        ["a", 7, 7.5, True],
        np.array(["2024-01-01", "2024-01-01T12:30"], dtype="datetime64[ns]"),
    ],
    ids=str,
)
def test_names_in_arrays_are_hashed_as_those_in_tables(values):
    column = (
        pd.Series(values, dtype=np.object_) if isinstance(values[0], str) else pd.Series(values)
    )
    found = hash_names("keys", column.to_numpy(), len(values))
    assert (found == hashes.key_hashes(column)).all()
