"""Parameters as command lines give them."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from scrib_mlflow.errors import InvalidSettingsError
from scrib_mlflow.options import Calibrate
from scrib_mlflow.parameters import read_settings

NEEDED = {"model_uri": "models:/a/1", "data": "rows.csv", "label": "y"}


def read(**values):
    return read_settings(Calibrate, {**NEEDED, **values})


def test_a_mapping_can_be_a_number_inline_yaml_or_a_file(tmp_path):
    path = tmp_path / "targets.yaml"
    path.write_text("N1: 0.2\ndefault: 0.1\n", encoding="utf-8")
    assert read(risk_targets="0.2").risk_targets == 0.2
    expected = {"N1": 0.2, "default": 0.1}
    assert read(risk_targets="{N1: 0.2, default: 0.1}").risk_targets == expected
    assert read(risk_targets=str(path)).risk_targets == expected
    assert read(risk_targets=expected).risk_targets == expected


def test_class_names_that_yaml_would_change_stay_text():
    targets = read(risk_targets="{~: 0.2, no: 0.1, null: 0.3, 1: 0.4, 1e3: 0.5}").risk_targets
    assert list(targets) == ["~", "no", "null", "1", "1e3"]
    assert read(classes="[~, yes, 01]").classes == ("~", "yes", "01")


def test_a_list_can_be_inline_yaml_words_with_commas_or_a_file(tmp_path):
    path = tmp_path / "classes.yaml"
    path.write_text("- W\n- N1\n", encoding="utf-8")
    for text in ("[W, N1]", "W,N1", "W, N1", str(path)):
        assert read(classes=text).classes == ("W", "N1")


def test_numbers_can_be_names_of_classes():
    assert read(waive="8").waive == ("8",)
    assert read(waive=[8], classes=(0, 1)).classes == ("0", "1")
    long = ",".join(f"a long class name {j}" for j in range(40))
    assert len(read(waive=long).waive) == 40


def test_files_that_hold_no_yaml_are_told(tmp_path):
    (tmp_path / "empty.yaml").touch()
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    for name in ("empty", "binary"):
        with pytest.raises(InvalidSettingsError):
            read(risk_targets=str(tmp_path / f"{name}.yaml"))


def test_empty_text_means_not_given():
    found = read(overall_target="", waive="", classes=" ", certify_data="")
    assert (found.overall_target, found.waive, found.classes) == (None, (), None)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"risk_targets": "2"}, "risk_targets is '2', but input should be less than 1"),
        ({"risk_targets": "10"}, "risk_targets is '10', but input should be less than 1; did you"),
        ({"risk_targets": 10}, "did you mean 0.1?"),
        ({"risk_targets": "{N1: 20, default: 0.1}"}, "risk_targets.N1 is '20', but input should"),
        ({"risk_targets": "{N1: 20, default: 0.1}"}, "did you mean 0.2?"),
        ({"risk_groups": {"g": (["a"], 2.5)}}, "did you mean 0.025?"),
        ({"overall_target": "5"}, "did you mean 0.05?"),
        (
            {"confidence": "95"},
            "confidence is '95', but input should be less than 1; did you mean 0.95?",
        ),
        ({"certify_fraction": 70}, "did you mean 0.7?"),
        ({"risk_targets": "nothing"}, "neither a number, nor inline YAML"),
        ({"risk_targets": "{a: 0.1, a: 0.2}"}, "names 'a' more than once"),
        ({"risk_targets": "{a: x}"}, "risk_targets.a is 'x'"),
        ({"risk_targets": "{a"}, "is not YAML"),
        ({"risk_targets": {1: 0.1, "1": 0.2}}, "the same as text"),
        ({"mode": "proved"}, "mode is 'proved', but input should be 'certified' or 'paper'"),
        ({"seed": "1.5"}, "seed is '1.5'"),
        ({"sed": 1}, "has no parameter 'sed'; did you mean 'seed'?"),
        ({"empty_weight": "-1"}, "greater than or equal to 0"),
        ({"label": ""}, "label is missing"),
    ],
)
def test_what_is_wrong_is_said_with_the_name_and_the_value(values, words):
    with pytest.raises(InvalidSettingsError) as error:
        read(**values)
    assert words in str(error.value)


@pytest.mark.parametrize(
    ("name", "value"), [("confidence", 1), ("confidence", 30), ("risk_targets", 250), ("seed", -1)]
)
def test_a_hint_is_given_only_where_the_share_would_do(name, value):
    with pytest.raises(InvalidSettingsError) as error:
        read(**{name: value})
    assert "did you mean" not in str(error.value)


def test_the_class_default_can_be_written_in_yaml():
    wanted = {"=default": 0.05, "default": 0.1}
    for text in ("{=default: 0.05, default: 0.1}", '{"=default": 0.05, default: 0.1}'):
        assert read(risk_targets=text).risk_targets == wanted


def test_data_can_be_a_path_or_a_frame_which_text_names_and_never_shows():
    assert read(data=Path("rows.csv")).data == "rows.csv"
    frame = pd.DataFrame({"x": [1.5, 2.5, 3.5], "y": ["a", "b", "a"]})
    found = read(data=frame, certify_data=frame.head(1))
    assert (found.data, found.certify_data) == ("a frame of 3 rows", "a frame of 1 row")
    assert found.data.rows is frame
    assert found.model_dump(mode="json")["data"] == "a frame of 3 rows"


@pytest.mark.parametrize("value", [np.zeros((3, 2)), pd.Series([1.5]), [1.5], 3, object()])
def test_data_that_is_no_frame_and_no_place_is_named_by_its_kind(value):
    with pytest.raises(
        InvalidSettingsError, match=r"give the path or the URI .* DataFrame"
    ) as told:
        read(data=value)
    assert len(str(told.value)) < 150


def test_spark_is_not_asked_for_the_rows_of_a_frame():
    with pytest.raises(InvalidSettingsError, match="path_data is a frame of 1 row, which engine"):
        read(path_data=pd.DataFrame({"x": [1]}), engine="spark")
