"""ScribClassifier: fitted classifiers of scikit-learn, calibrated and certified."""

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.datasets import make_classification
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.svm import SVC
from sklearn.utils.estimator_checks import parametrize_with_checks

import scrib_mlflow
from scrib_mlflow import ScribClassifier
from scrib_mlflow.errors import InvalidDataError, InvalidLabelsError, InvalidScoresError

NAMES = np.array(["deep", "light", "wake"])


X, Y = make_classification(
    5_000, 8, n_informative=5, n_classes=3, class_sep=1.5, flip_y=0.02, random_state=1
)
TRAIN, HELD, FRESH = slice(0, 1_000), slice(1_000, 4_000), slice(4_000, 5_000)


@pytest.fixture(scope="module")
def forest():
    return RandomForestClassifier(50, random_state=0).fit(X[TRAIN], NAMES[Y[TRAIN]])


@pytest.fixture(scope="module")
def fitted(forest):
    return ScribClassifier(forest, risk_targets={"wake": 0.2, "default": 0.15}).fit(
        X[HELD], NAMES[Y[HELD]]
    )


def test_a_forest_with_named_classes_is_certified_and_abstains_with_none(fitted, forest):
    assert fitted.certificate_.passed
    assert fitted.certificate_ == fitted.certified_fit_.certificate
    assert fitted.rule_ == fitted.certified_fit_.rule
    assert fitted.classes_.tolist() == [*NAMES]
    assert fitted.n_features_in_ == 8
    targets = {claim.name: claim.target for claim in fitted.certificate_.claims}
    assert targets == {"deep": 0.15, "light": 0.15, "wake": 0.2}
    sets = fitted.predict_sets(X[FRESH])
    scores = forest.predict_proba(X[FRESH])
    assert (sets == scrib_mlflow.predict_sets(scores, fitted.rule_)).all()
    assert (fitted.predict_proba(X[FRESH]) == scores).all()
    answers = fitted.predict(X[FRESH])
    assert answers.dtype == object
    for answer, members in zip(answers, sets, strict=True):
        named = NAMES[members].tolist()
        assert answer == (named[0] if len(named) == 1 else None)
    assert any(answer is None for answer in answers)
    given = answers != None  # noqa: E711  # elementwise
    assert (answers[given] == forest.predict(X[FRESH])[given]).all()
    truth = NAMES[Y[FRESH]]
    assert fitted.score(X[FRESH], truth) == np.mean(answers == truth)
    for name, target in targets.items():
        own = (truth == name) & given
        wrong = np.sum(answers[own] != name)
        assert stats.binom.sf(wrong - 1, own.sum(), target) > 0.05  # 1,000 rows do not refute it


def test_it_gives_what_fit_certified_gives(forest):
    options = {"rule": "optimal", "overall_target": 0.15, "seed": 3, "confidence": 0.9}
    options["answers"] = "any"
    found = ScribClassifier(forest, risk_targets=0.2, **options)
    keys, groups = np.arange(3_000), np.arange(3_000) // 3
    found.fit(X[HELD], NAMES[Y[HELD]], keys=keys, groups=groups)
    scores = forest.predict_proba(X[HELD])
    wanted = scrib_mlflow.fit_certified(
        scores, NAMES[Y[HELD]], 0.2, classes=[*NAMES], keys=keys, groups=groups, **options
    )
    assert found.certified_fit_ == wanted


def test_numbers_that_are_no_indices_stay_what_they_are():
    numbers = np.array([30, 7, 11])
    model = LogisticRegression().fit(X[TRAIN], numbers[Y[TRAIN]])
    found = ScribClassifier(model, risk_targets=0.3, abstain_label=-1)
    found.fit(X[HELD], numbers[Y[HELD]])
    answers = found.predict(X[FRESH])
    assert answers.dtype == np.int64
    assert {*answers} == {7, 11, 30, -1}
    assert found.score(X[FRESH], numbers[Y[FRESH]]) > 0.5


@pytest.mark.parametrize("classes", [2, 3])
def test_decision_functions_are_scores_for_thresholds(classes):
    some = classes > Y
    train, held = some[TRAIN], some[HELD]
    model = RidgeClassifier().fit(X[TRAIN][train], Y[TRAIN][train])
    found = ScribClassifier(model, risk_targets=0.3).fit(X[HELD][held], Y[HELD][held])
    assert found.certificate_.passed
    assert found.predict_sets(X[FRESH]).shape == (1_000, classes)
    assert not hasattr(found, "predict_proba")
    with pytest.raises(InvalidScoresError, match="RidgeClassifier has no predict_proba"):
        ScribClassifier(model, rule="optimal").fit(X[HELD][held], Y[HELD][held])


def test_a_decision_function_of_pairs_is_refused():
    model = SVC(decision_function_shape="ovo").fit(X[:300], np.arange(300) % 4)
    with pytest.raises(InvalidScoresError, match="6 columns for 4 classes"):
        ScribClassifier(model).fit(X[:100], np.arange(100) % 4)


def test_a_pipeline_gets_tables_as_they_are():
    def table(rows):
        frame = pd.DataFrame(X[rows], columns=[f"x{j}" for j in range(8)])
        return frame.assign(x7=np.where(frame["x7"] > 0, "high", "low"))

    columns = make_column_transformer(
        (OneHotEncoder(), ["x7"]), (StandardScaler(), [f"x{j}" for j in range(7)])
    )
    model = make_pipeline(columns, LogisticRegression()).fit(table(TRAIN), NAMES[Y[TRAIN]])
    labels = pd.Series(NAMES[Y[HELD]], index=np.arange(3_000)[::-1])
    found = ScribClassifier(model, risk_targets=0.3, rule="thresholds", abstain_label="?")
    found.fit(table(HELD), labels)
    assert found.certificate_.passed
    assert found.feature_names_in_.tolist() == [f"x{j}" for j in range(8)]
    assert {*found.predict(table(FRESH))} == {*NAMES, "?"}


def test_weights_and_further_rows_reach_the_fit(forest):
    weights = np.where(X[HELD][:, 0] > 0, 1.0, 0.5)
    found = ScribClassifier(forest, risk_targets=0.3, max_weight=1.0)
    found.fit(X[HELD], NAMES[Y[HELD]], sample_weight=weights, X_path=X[FRESH])
    assert found.certified_fit_.path.n_rows == 1_000
    assert found.certified_fit_.fit_rows == 300
    with pytest.raises(InvalidDataError, match="stand in path_scores"):
        found.fit(X[HELD], NAMES[Y[HELD]], X_path=X[HELD])


def test_it_warns_where_nothing_is_certified(forest):
    with pytest.warns(UserWarning, match="nothing is certified: deep"):
        found = ScribClassifier(forest, risk_targets=0.001).fit(X[HELD], NAMES[Y[HELD]])
    assert not found.certificate_.passed
    assert found.predict_sets(X[FRESH]).shape == (1_000, 3)


def test_what_cannot_be_is_said(forest):
    with pytest.raises(NotFittedError, match=r"fit it first.*FrozenEstimator"):
        ScribClassifier(LogisticRegression()).fit(X[HELD], Y[HELD])
    with pytest.raises(NotFittedError, match=r"fit it first.*FrozenEstimator"):
        ScribClassifier(make_pipeline(StandardScaler(), LogisticRegression())).fit(X, Y)
    with pytest.raises(NotFittedError):
        ScribClassifier(forest).predict(X[FRESH])
    with pytest.raises(InvalidLabelsError, match=r"y\[0\] is .*'deeper'.* knows \['deep'"):
        ScribClassifier(forest).fit(X[:2], ["deeper", "deep"])


def test_it_survives_pickling_and_a_frozen_classifier_survives_cloning(fitted, forest):
    frozen = pytest.importorskip("sklearn.frozen")  # since 1.6
    again = pickle.loads(pickle.dumps(fitted))  # noqa: S301
    assert (again.predict_sets(X[FRESH]) == fitted.predict_sets(X[FRESH])).all()
    assert again.certified_fit_ == fitted.certified_fit_
    calibrator = ScribClassifier(frozen.FrozenEstimator(forest), risk_targets=0.2, threads=1)
    copied = clone(calibrator).fit(X[HELD], NAMES[Y[HELD]])
    assert copied.certificate_.passed
    found = cross_val_score(calibrator, X[HELD], NAMES[Y[HELD]], cv=2)
    assert (found > 0.5).all()


class FitsBoth(ScribClassifier):
    """Fits its classifier first, on the same rows: scikit-learn's checks fit what they check."""

    def fit(self, X, y, **options):  # noqa: N803
        self.estimator.fit(X, y)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "nothing is certified")
            return super().fit(X, y, **options)


NOT_FOR_IT = {
    "check_estimators_overwrite_params": "FitsBoth fits its classifier",
    "check_classifiers_one_label_sample_weights": "one row is too few to fit and certify",
}


@parametrize_with_checks(
    [FitsBoth(LogisticRegression(), risk_targets=0.3, abstain_label=-1, threads=1)],
    expected_failed_checks=lambda _: NOT_FOR_IT,
)
def test_it_passes_the_checks_of_scikit_learn(estimator, check):
    check(estimator)
