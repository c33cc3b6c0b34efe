"""The models that people make first: categoricals, text, no signature; from registry to sets.

What is served is compared with the model's own scores for the same rows.
"""

import mlflow
import numpy as np
import pandas as pd
import pytest
from mlflow.models import infer_signature
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from scrib_mlflow.errors import ModelError
from scrib_mlflow.workflows.calibrate import calibrate
from tests.flavours import check_served, register

CLASSES = ("food", "money", "sport")
WORDS = {
    "food": "bread soup rice salt oven cake",
    "money": "bank rate bond stock cash loan",
    "sport": "ball goal match team win player",
}
ALL_WORDS = " ".join(WORDS.values()).split()
INPUTS = ["size", "shop", "level"]


def draw_texts(n, seed):
    """Return rows of text, two words of the class and four of any."""
    random = np.random.default_rng(seed)
    labels = random.choice(CLASSES, n)
    texts = [
        " ".join([*random.choice(WORDS[label].split(), 2), *random.choice(ALL_WORDS, 4)])
        for label in labels
    ]
    return pd.DataFrame({"text": texts, "label": labels})


def draw_shops(n, seed):
    """Return rows with a categorical of text and one of numbers."""
    random = np.random.default_rng(seed)
    labels = random.integers(0, 3, n)
    shop = np.where(random.random(n) < 0.7, labels, random.integers(0, 3, n))
    return pd.DataFrame(
        {
            "size": random.normal(size=n) + labels,
            "shop": pd.Categorical(np.array(["market", "bank", "stadium"])[shop]),
            "level": pd.Categorical(random.integers(0, 4, n)),
            "label": np.array(CLASSES)[labels],
        }
    )


TEXTS, NEW_TEXTS = draw_texts(600, 1), draw_texts(100, 2)
SHOPS, NEW_SHOPS = draw_shops(600, 1), draw_shops(100, 2)
OPTIONS = {"risk_targets": 0.15, "rule": "thresholds"}


def fit_text():
    """Return the first text model that anyone makes."""
    model = make_pipeline(TfidfVectorizer(), LogisticRegression())
    trained = draw_texts(600, 0)
    return model.fit(trained["text"], trained["label"])


def fit_lightgbm():
    """Return a boosted tree on categoricals."""
    lightgbm = pytest.importorskip("lightgbm")
    trained = draw_shops(600, 0)
    model = lightgbm.LGBMClassifier(n_estimators=10, max_depth=3, n_jobs=1, verbose=-1)
    return model.fit(trained[INPUTS], trained["label"])


def plain(rows):
    """Return rows as a request has them, without categoricals."""
    return rows.astype({"shop": object, "level": np.int64})


@pytest.mark.parametrize("signature", [infer_signature(SHOPS[INPUTS]), None], ids=["signed", ""])
def test_a_boosted_tree_on_categoricals_is_calibrated_and_served(store, signature):
    model = fit_lightgbm()
    uri = register(mlflow.lightgbm.log_model, model, signature=signature)
    SHOPS.assign(note="x").to_parquet("rows.parquet")  # a column that the model does not know
    done = calibrate(uri, "rows.parquet", "label", **OPTIONS)
    scores = model.predict_proba(NEW_SHOPS[INPUTS])
    check_served(done, scores, CLASSES, plain(NEW_SHOPS[INPUTS]))


def test_a_text_column_of_a_csv_is_a_categorical_where_the_model_wants_one(store):
    lightgbm = pytest.importorskip("lightgbm")
    used = ["size", "shop"]
    trained = draw_shops(600, 0)
    model = lightgbm.LGBMClassifier(n_estimators=10, max_depth=3, n_jobs=1, verbose=-1)
    model.fit(trained[used], trained["label"])
    uri = register(mlflow.lightgbm.log_model, model, signature=infer_signature(trained[used]))
    SHOPS.to_csv("rows.csv", index=False)
    done = calibrate(uri, "rows.csv", "label", **OPTIONS)
    assert done.classifier.scores.categorical == ("shop",)
    check_served(done, model.predict_proba(NEW_SHOPS[used]), CLASSES, plain(NEW_SHOPS)[used])


def test_a_model_that_takes_categoricals_and_plain_values_alike_gets_plain_values(store):
    trained = draw_shops(600, 0)
    model = HistGradientBoostingClassifier(max_iter=10, categorical_features="from_dtype")
    model.fit(trained[["size", "shop"]], trained["label"])
    uri = register(mlflow.sklearn.log_model, model, serialization_format="cloudpickle")
    SHOPS.to_parquet("rows.parquet")
    done = calibrate(uri, "rows.parquet", "label", **OPTIONS)
    assert done.classifier.scores.categorical == ()
    rows = NEW_SHOPS[["size", "shop"]]
    check_served(done, model.predict_proba(rows), CLASSES, rows.astype({"shop": object}))


@pytest.mark.parametrize(
    "options",
    [{}, {"signature": infer_signature(TEXTS[["text"]])}, {"input_example": TEXTS[["text"]][:2]}],
    ids=["", "signature", "example"],
)
def test_a_text_pipeline_is_calibrated_and_served_however_it_is_logged(store, options):
    model = fit_text()
    uri = register(mlflow.sklearn.log_model, model, serialization_format="cloudpickle", **options)
    TEXTS.to_parquet("rows.parquet")
    done = calibrate(uri, "rows.parquet", "label", **OPTIONS)
    assert done.classifier.scores.one_column
    check_served(done, model.predict_proba(NEW_TEXTS["text"]), CLASSES, NEW_TEXTS[["text"]])


def test_an_answer_to_one_text_does_not_depend_on_others_and_a_missing_text_abstains(store):
    uri = register(mlflow.sklearn.log_model, fit_text(), serialization_format="cloudpickle")
    TEXTS.to_parquet("rows.parquet")
    done = calibrate(uri, "rows.parquet", "label", **OPTIONS)
    served = mlflow.pyfunc.load_model(done.model_uri)
    rows = NEW_TEXTS[["text"]][:4]
    alone = [served.predict(rows[i : i + 1])["prediction"].iloc[0] for i in range(4)]
    assert served.predict(rows)["prediction"].tolist() == alone
    rows = rows.assign(text=[rows["text"].iloc[0], None, *rows["text"].iloc[2:]])
    assert served.predict(rows)["reason"].tolist()[1] == "invalid_scores"


def test_a_text_pipeline_with_several_columns_is_told_how_to_be_logged(store):
    uri = register(mlflow.sklearn.log_model, fit_text(), serialization_format="cloudpickle")
    TEXTS.assign(source="web").to_parquet("rows.parquet")
    with pytest.raises(ModelError, match="ColumnTransformer"):
        calibrate(uri, "rows.parquet", "label")


@pytest.mark.parametrize("library", ["scikit-learn", "lightgbm"])
def test_a_model_without_a_signature_takes_the_columns_that_it_was_trained_on(store, library):
    trained, numbers = draw_shops(600, 0), ["size", "weight"]
    trained = trained.assign(weight=trained["size"] ** 2)
    if library == "lightgbm":
        lightgbm = pytest.importorskip("lightgbm")
        model = lightgbm.LGBMClassifier(n_estimators=10, n_jobs=1, verbose=-1)
        log = mlflow.lightgbm.log_model
    else:
        model, log = LogisticRegression(), mlflow.sklearn.log_model
    model.fit(trained[numbers], trained["label"])
    rows = SHOPS.assign(weight=SHOPS["size"] ** 2)
    rows[["label", "weight", "shop", "size", "level"]].to_parquet("rows.parquet")
    done = calibrate(register(log, model), "rows.parquet", "label", **OPTIONS)
    new = NEW_SHOPS.assign(weight=NEW_SHOPS["size"] ** 2)[numbers]
    check_served(done, model.predict_proba(new), CLASSES, new)
