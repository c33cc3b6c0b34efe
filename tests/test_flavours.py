"""Models of many libraries against the libraries' own scores.

One of each goes from the registry to served sets; of others the scores are found.
"""

import os
import sys

import mlflow
import numpy as np
import pandas as pd
import pytest
from mlflow.models import infer_signature
from sklearn.linear_model import LogisticRegression
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier

from scrib_mlflow.errors import InvalidLabelsError, ModelError
from tests.flavours import (
    NEW,
    TABLE,
    TRAINED,
    binary,
    calibrated,
    check_scored,
    check_served,
    find_scores,
    indexed,
    register,
    saved,
)
from tests.models import CLASSES, FEATURES, fit_pipeline

X, Y = TRAINED[FEATURES], TRAINED["label"]
CODES = indexed(TRAINED)["label"]
TWO = binary(TRAINED)
SIGNATURE = infer_signature(X)
AS_TENSOR = infer_signature(X.to_numpy(dtype=np.float32))


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder for models; they need no store."""
    monkeypatch.chdir(tmp_path)


# scikit-learn


def test_a_pipeline_serves_the_sets_of_its_probabilities(store):
    model = fit_pipeline(TRAINED)
    uri = register(mlflow.sklearn.log_model, model, signature=SIGNATURE)
    check_served(calibrated(uri), model.predict_proba(NEW))


@pytest.mark.parametrize("scores_from", ["auto", "predict"])
def test_a_model_logged_to_predict_probabilities_keeps_its_class_names(here, scores_from):
    model = fit_pipeline(TRAINED)
    loaded = saved(mlflow.sklearn, model, pyfunc_predict_fn="predict_proba")
    check_scored(loaded, model.predict_proba(NEW), scores_from=scores_from)


def test_labels_may_be_indices_of_the_models_classes(store):
    model = fit_pipeline(TRAINED)
    uri = register(mlflow.sklearn.log_model, model)
    check_served(calibrated(uri, indexed(TABLE)), model.predict_proba(NEW))


def test_classes_named_by_numbers_from_1_are_names_not_indices(store):
    model = LogisticRegression().fit(X, CODES + 1)
    uri = register(mlflow.sklearn.log_model, model)
    done = calibrated(uri, indexed(TABLE, first=1))
    check_served(done, model.predict_proba(NEW), ("1", "2", "3"))
    with pytest.raises(InvalidLabelsError, match="is 0, which is no class"):
        calibrated(uri, indexed(TABLE))


def test_a_binary_model_has_both_columns(here):
    model = LogisticRegression().fit(TWO[FEATURES], TWO["label"])
    loaded = saved(mlflow.sklearn, model, signature=SIGNATURE)
    check_scored(loaded, model.predict_proba(NEW), CLASSES[:2])


def test_a_tree_is_served_with_the_types_that_were_trusted(store):
    model = DecisionTreeClassifier(min_samples_leaf=10, random_state=0).fit(X, Y)
    trusted = ["sklearn.tree._tree.Tree"]
    uri = register(mlflow.sklearn.log_model, model, skops_trusted_types=trusted)
    check_served(calibrated(uri), model.predict_proba(NEW))


def test_a_tree_may_be_stored_as_a_pickle(here):
    model = DecisionTreeClassifier(min_samples_leaf=10, random_state=0).fit(X, Y)
    loaded = saved(mlflow.sklearn, model, serialization_format="cloudpickle")
    check_scored(loaded, model.predict_proba(NEW))


def test_a_model_trained_on_arrays_takes_columns_in_their_order(here):
    model = LogisticRegression().fit(X.to_numpy(), Y)
    loaded = saved(mlflow.sklearn, model, signature=infer_signature(X.to_numpy()))
    check_scored(loaded, model.predict_proba(NEW.to_numpy()))


def test_columns_of_the_data_may_stand_in_any_order_and_among_others(store):
    model = LogisticRegression().fit(X.to_numpy(), Y)  # which knows no names itself
    uri = register(mlflow.sklearn.log_model, model, signature=SIGNATURE)
    done = calibrated(uri, TABLE.assign(id=np.arange(len(TABLE)))[["id", "label", *FEATURES[::-1]]])
    check_served(done, model.predict_proba(NEW.to_numpy()), rows=NEW[FEATURES[::-1]])


def test_margins_are_served_where_they_are_asked_for(store):
    model = SVC().fit(X, Y)
    uri = register(mlflow.sklearn.log_model, model, signature=SIGNATURE)
    done = calibrated(uri, scores_from="decision_function")
    check_served(done, model.decision_function(NEW))


def test_a_margin_of_two_classes_is_that_of_the_second(here):
    model = SVC().fit(TWO[FEATURES], TWO["label"])
    loaded = saved(mlflow.sklearn, model, signature=SIGNATURE)
    margins = model.decision_function(NEW)
    scores = np.column_stack([-margins, margins])
    check_scored(loaded, scores, CLASSES[:2], scores_from="decision_function")


def test_margins_of_pairs_of_classes_are_refused(here):
    loaded = saved(mlflow.sklearn, SVC(decision_function_shape="ovo").fit(X, Y))
    with pytest.raises(ModelError, match="pairs of classes"):
        find_scores(loaded, scores_from="decision_function")


def test_a_model_that_gives_labels_only_is_refused_and_nothing_is_registered(store):
    uri = register(mlflow.sklearn.log_model, SVC().fit(X, Y))
    with pytest.raises(ModelError, match="scores_from"):
        calibrated(uri)
    assert [model.name for model in mlflow.search_registered_models()] == ["base"]


def test_a_signature_in_single_precision_takes_data_in_double_precision(store):
    model = LogisticRegression().fit(X.astype(np.float32), Y)
    uri = register(mlflow.sklearn.log_model, model, signature=infer_signature(X.astype(np.float32)))
    single = NEW.astype(np.float32)
    check_served(calibrated(uri), model.predict_proba(single), rows=single)


# Boosted trees


def test_an_xgboost_classifier_has_the_names_given(store):
    xgboost = pytest.importorskip("xgboost")
    model = xgboost.XGBClassifier(n_estimators=5, max_depth=2, n_jobs=1).fit(X, CODES)
    uri = register(mlflow.xgboost.log_model, model, signature=SIGNATURE)
    check_served(calibrated(uri, classes=CLASSES), model.predict_proba(NEW))


def test_an_xgboost_booster_has_the_names_given(here):
    xgboost = pytest.importorskip("xgboost")
    options = {"objective": "multi:softprob", "num_class": 3, "max_depth": 2, "nthread": 1}
    model = xgboost.train(options, xgboost.DMatrix(X, CODES), num_boost_round=5)
    loaded = saved(mlflow.xgboost, model)
    check_scored(loaded, model.predict(xgboost.DMatrix(NEW)), given=CLASSES)


@pytest.mark.parametrize("objective", ["binary:logistic", "binary:logitraw"])
def test_a_binary_xgboost_booster_gives_one_score(here, objective):
    xgboost = pytest.importorskip("xgboost")
    data = xgboost.DMatrix(TWO[FEATURES], indexed(TWO)["label"])
    options = {"objective": objective, "max_depth": 2, "nthread": 1}
    model = xgboost.train(options, data, num_boost_round=5)
    loaded = saved(mlflow.xgboost, model, signature=SIGNATURE)
    second = model.predict(xgboost.DMatrix(NEW)).astype(np.float64)
    first = 1 - second if objective == "binary:logistic" else -second
    check_scored(loaded, np.column_stack([first, second]), ("0", "1"))


def test_an_xgboost_booster_that_predicts_labels_is_refused(here):
    xgboost = pytest.importorskip("xgboost")
    options = {"objective": "multi:softmax", "num_class": 3, "max_depth": 2, "nthread": 1}
    model = xgboost.train(options, xgboost.DMatrix(X, CODES), num_boost_round=5)
    with pytest.raises(ModelError, match="labels, not scores"):
        find_scores(saved(mlflow.xgboost, model))


def test_a_lightgbm_classifier_has_names_of_its_own(store):
    lightgbm = pytest.importorskip("lightgbm")
    model = lightgbm.LGBMClassifier(n_estimators=5, max_depth=2, n_jobs=1, verbose=-1).fit(X, Y)
    uri = register(
        mlflow.lightgbm.log_model, model, signature=SIGNATURE, serialization_format="cloudpickle"
    )
    check_served(calibrated(uri), model.predict_proba(NEW))


def test_a_lightgbm_booster_has_the_names_given(here):
    lightgbm = pytest.importorskip("lightgbm")
    options = {"objective": "multiclass", "num_class": 3, "num_threads": 1, "verbose": -1}
    model = lightgbm.train(options, lightgbm.Dataset(X, CODES), num_boost_round=5)
    check_scored(saved(mlflow.lightgbm, model), model.predict(NEW), given=CLASSES)


def test_a_catboost_classifier_has_names_of_its_own(store):
    catboost = pytest.importorskip("catboost")
    model = catboost.CatBoostClassifier(
        iterations=5, depth=2, thread_count=1, verbose=False, allow_writing_files=False
    ).fit(X, Y)
    uri = register(mlflow.catboost.log_model, model, signature=SIGNATURE)
    check_served(calibrated(uri), model.predict_proba(NEW))


# ONNX


def to_onnx(model, *, zipmap=False, inputs=(("x", 4),)):
    skl2onnx = pytest.importorskip("skl2onnx")
    pytest.importorskip("onnxruntime")
    tensor = skl2onnx.common.data_types.FloatTensorType
    return skl2onnx.convert_sklearn(
        model,
        initial_types=[(name, tensor([None, width])) for name, width in inputs],
        options={id(model): {"zipmap": zipmap}},
    )


def run_onnx(model, **inputs):
    import onnxruntime  # noqa: PLC0415  # may be absent

    session = onnxruntime.InferenceSession(model.SerializeToString())
    tensors = {name: value.to_numpy(dtype=np.float32) for name, value in inputs.items()}
    return session.run(None, tensors)[1]


def test_an_onnx_model_has_the_names_given(store):
    model = to_onnx(fit_pipeline(TRAINED))
    uri = register(mlflow.onnx.log_model, model)
    check_served(calibrated(uri, classes=CLASSES), run_onnx(model, x=NEW))


@pytest.mark.parametrize("signature", [SIGNATURE, AS_TENSOR], ids=["columns", "tensor"])
def test_an_onnx_model_takes_columns_or_a_tensor(here, signature):
    model = to_onnx(fit_pipeline(TRAINED))
    rows = NEW.astype(np.float32) if signature is AS_TENSOR else NEW
    loaded = saved(mlflow.onnx, model, signature=signature)
    check_scored(loaded, run_onnx(model, x=NEW), rows=rows, given=CLASSES)


def test_an_onnx_model_with_an_input_for_each_column_takes_them_by_name(here):
    model = to_onnx(fit_pipeline(TRAINED), inputs=[(name, 1) for name in FEATURES])
    loaded = saved(mlflow.onnx, model, signature=SIGNATURE)
    scores = run_onnx(model, **{name: NEW[[name]] for name in FEATURES})
    check_scored(loaded, scores, rows=NEW[FEATURES[::-1]], given=CLASSES)


def test_an_onnx_model_whose_labels_contradict_the_names_given_is_refused(here):
    loaded = saved(mlflow.onnx, to_onnx(fit_pipeline(TRAINED)))
    with pytest.raises(ModelError, match="highest score on few rows"):
        find_scores(loaded, classes=("hard", "middle", "easy"))


@pytest.mark.parametrize("options", [{}, {"signature": SIGNATURE}])
def test_an_onnx_model_with_a_zipmap_has_names_of_its_own(here, options):
    model = to_onnx(fit_pipeline(TRAINED), zipmap=True)
    loaded = saved(mlflow.onnx, model, **options)
    scores = [[row[name] for name in CLASSES] for row in run_onnx(model, x=NEW)]
    check_scored(loaded, scores)


# Networks


@pytest.fixture
def network():
    """A network that gives the logits of the three classes, and its logits of the new rows."""
    torch = pytest.importorskip("torch")
    trained = LogisticRegression().fit(X, Y)
    model = torch.nn.Sequential(torch.nn.Linear(4, 3))
    with torch.no_grad():
        model[0].weight.copy_(torch.tensor(trained.coef_))
        model[0].bias.copy_(torch.tensor(trained.intercept_))
        return model, model(torch.tensor(NEW.to_numpy(dtype=np.float32))).numpy()


def test_a_torch_network_is_calibrated_on_its_logits(store, network):
    model, logits = network
    uri = register(mlflow.pytorch.log_model, model, serialization_format="pickle")
    check_served(calibrated(uri, classes=CLASSES), logits)


def test_a_torch_network_takes_a_tensor(here, network):
    model, logits = network
    loaded = saved(mlflow.pytorch, model, serialization_format="pickle", signature=AS_TENSOR)
    check_scored(loaded, logits, rows=NEW.astype(np.float32), given=CLASSES)


def test_an_exported_torch_network_is_served(store, network):
    model, logits = network
    example = X.head(2).to_numpy(dtype=np.float32)
    uri = register(mlflow.pytorch.log_model, model, input_example=example)
    rows = NEW.to_numpy(dtype=np.float32)
    check_served(calibrated(uri, classes=CLASSES), logits, rows=rows)


def test_a_transformation_is_applied_when_served_as_well(store, network):
    model, logits = network
    uri = register(mlflow.pytorch.log_model, model, serialization_format="pickle")
    done = calibrated(uri, classes=CLASSES, score_transform="softmax")
    powers = np.exp(logits.astype(np.float64))
    check_served(done, powers / powers.sum(axis=1, keepdims=True))
    assert max(done.classifier.rule.thresholds) < 1


@pytest.fixture
def keras(monkeypatch):
    """Keras on torch, which is here already."""
    pytest.importorskip("torch")
    monkeypatch.setitem(os.environ, "KERAS_BACKEND", "torch")
    return pytest.importorskip("keras")


@pytest.mark.parametrize("options", [{}, {"signature": AS_TENSOR}])
def test_a_keras_network_is_served(store, keras, options):
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3, activation="softmax")])
    model.compile("adam", "sparse_categorical_crossentropy")
    model.set_weights([fit_pipeline(TRAINED)[-1].coef_.T, np.zeros(3)])
    uri = register(mlflow.keras.log_model, model, **options)
    rows = NEW.astype(np.float32)
    done = calibrated(uri, classes=CLASSES, risk_targets=0.2)
    check_served(done, model.predict(rows.to_numpy(), verbose=0), rows=rows)


# Models of one's own


class Own(mlflow.pyfunc.PythonModel):
    """Returns a classifier's probabilities in a form of its own."""

    def __init__(self, model, form):
        self.model = model
        self.form = form

    def predict(self, context, model_input: pd.DataFrame, params=None):
        scores = self.model.predict_proba(model_input)
        return self.form(pd.DataFrame(scores, columns=self.model.classes_))


FORMS = {
    "columns in turn": lambda scores: scores[[*np.roll(CLASSES, len(scores) % 3)]],
    "array": lambda scores: scores.to_numpy(),
    "mappings": lambda scores: scores.to_dict(orient="records"),
    "label beside": lambda scores: scores.assign(label=scores.idxmax(axis=1)),
}


def register_own(model, form, **options):
    return register(
        lambda own, **logged: mlflow.pyfunc.log_model(python_model=own, **logged),
        Own(model, form),
        **options,
    )


@pytest.mark.parametrize("form", FORMS)
def test_a_python_model_may_return_scores_in_any_form_with_names_or_order(here, form):
    model = LogisticRegression().fit(X, Y)
    loaded = saved(mlflow.pyfunc, Own(model, FORMS[form]), signature=SIGNATURE)
    check_scored(loaded, model.predict_proba(NEW), given=CLASSES)


def test_a_python_model_names_its_classes_by_its_columns(store):
    model = LogisticRegression().fit(X, Y)
    uri = register_own(model, lambda scores: scores[["middle", "easy", "hard"]])
    done = calibrated(uri)
    check_served(done, model.predict_proba(NEW)[:, [2, 0, 1]], ("middle", "easy", "hard"))


class WithParameters(Own):
    """Looks at a parameter, and at the index that its rows have in a request."""

    def predict(self, context, model_input: pd.DataFrame, params=None):
        scores = super().predict(context, model_input)
        return scores.loc[range(len(model_input))] ** params["power"]


def test_a_model_with_parameters_of_its_own_is_served_with_their_defaults(store):
    model = LogisticRegression().fit(X, Y)
    own = WithParameters(model, lambda scores: scores)
    signature = infer_signature(X, params={"power": 3})
    uri = register(
        lambda own, **logged: mlflow.pyfunc.log_model(python_model=own, **logged),
        own,
        signature=signature,
    )
    done = calibrated(uri, TABLE.set_index(TABLE.index * 7 + 3), batch_rows=100)
    check_served(done, model.predict_proba(NEW) ** 3)


CHANCE = np.random.default_rng(0)


@pytest.mark.parametrize(
    "form",
    [
        pytest.param(lambda scores: scores.rank(pct=True) - 0.001, id="ranks in the batch"),
        pytest.param(lambda scores: scores.sort_values("easy"), id="sorted"),
        pytest.param(lambda scores: scores + CHANCE.normal(0, 0.1, scores.shape), id="chance"),
        pytest.param(lambda scores: scores.to_numpy().squeeze(), id="a row alone is no table"),
    ],
)
def test_a_model_that_scores_a_row_differently_alone_is_refused(here, form):
    loaded = saved(mlflow.pyfunc, Own(LogisticRegression().fit(X, Y), form))
    with pytest.raises(ModelError, match="score each row by itself"):
        find_scores(loaded, classes=CLASSES)


def test_a_model_with_code_of_its_own_is_served_with_it(store, tmp_path):
    code = tmp_path / "own_scale.py"
    code.write_text("def scale(rows):\n    return rows / 2\n")
    (tmp_path / "own_model.py").write_text(
        "import mlflow, numpy as np\n"
        "class Scaled(mlflow.pyfunc.PythonModel):\n"
        "    def predict(self, context, model_input, params=None):\n"
        "        from own_scale import scale\n"
        "        return scale(np.asarray(model_input)[:, :3])\n"
        "mlflow.models.set_model(Scaled())\n"
    )
    uri = register(
        lambda path, **options: mlflow.pyfunc.log_model(python_model=path, **options),
        str(tmp_path / "own_model.py"),
        code_paths=[str(code)],
        signature=SIGNATURE,
    )
    code.unlink()
    done = calibrated(uri, classes=CLASSES, risk_targets=0.5)
    sys.modules.pop("own_scale")
    check_served(done, NEW.to_numpy()[:, :3] / 2)
