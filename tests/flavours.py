"""Models of any library for tests: their scores found, or calibrated and asked for sets."""

from tempfile import mkdtemp

import mlflow
import numpy as np

from scrib_mlflow.rows.scoring import as_served, make_scorer
from scrib_mlflow.workflows.calibrate import calibrate
from tests.models import CLASSES, FEATURES, draw_table
from tests.oracles import keep_top

TRAINED = draw_table(300, seed=1)
TABLE = draw_table(300, seed=2)  # calibrated on
NEW = draw_table(100, seed=3)[FEATURES]  # served
INDEX = {name: j for j, name in enumerate(CLASSES)}


def binary(table):
    """Return the rows of two of the three classes."""
    return table[table["label"] != "middle"].reset_index(drop=True)


def indexed(table, first=0):
    """Return the table with numbers as labels."""
    return table.assign(label=table["label"].map(INDEX) + first)


def register(log, model, **options):
    """Log and register a model; return its version's URI."""
    with mlflow.start_run():
        info = log(
            model,
            name="model",
            registered_model_name="base",
            **{"pip_requirements": ["mlflow"], **options},
        )
    return f"models:/base/{info.registered_model_version}"


def calibrated(uri, table=TABLE, **parameters):
    """Calibrate a registered model on a table."""
    table.to_parquet("rows.parquet")
    options = {"risk_targets": 0.15, "rule": "thresholds", **parameters}
    return calibrate(uri, "rows.parquet", "label", **options)


def check_served(done, scores, classes=CLASSES, rows=NEW):
    """Assert that a set classifier serves the classes whose scores reach the thresholds.

    The scores are those of the rows, had from the library itself. By default only the top class is
    answered.
    """
    assert done.classifier.classes == tuple(classes)
    assert done.classifier.rule.answers == "top"
    scores = np.asarray(scores, dtype=np.float64)
    sets = keep_top(scores >= np.array(done.classifier.rule.thresholds), scores)
    expected = [{classes[j] for j in np.flatnonzero(row)} for row in sets]
    answers = mlflow.pyfunc.load_model(done.model_uri).predict(rows)
    assert [set(members) for members in answers["prediction_set"]] == expected
    assert len({frozenset(members) for members in expected}) > 2  # not all alike


def saved(flavour, model, **options):
    """Save a model, without a store, and load it as MLflow serves it."""
    place = f"{mkdtemp(dir='.')}/model"
    options = {"pip_requirements": ["mlflow"], **options}
    if flavour is mlflow.pyfunc:
        flavour.save_model(place, python_model=model, **options)
    else:
        flavour.save_model(model, place, **options)
    return mlflow.pyfunc.load_model(place)


def find_scores(model, rows=NEW, classes=None, scores_from="auto"):
    """Find where a loaded model's scores are; return the names of its classes and the scores."""
    tried = TABLE[FEATURES].head(50).astype(rows.dtypes.iloc[0])
    scorer = make_scorer(model, tried, wanted=scores_from, classes=classes, transform="none")
    found, failed = as_served(scorer, rows)
    assert not failed
    return scorer.classes, found


def check_scored(model, scores, classes=CLASSES, rows=NEW, given=None, scores_from="auto"):
    """Assert that the scores found in a model's output are those had from the library itself.

    `given` are names of classes that the model does not know.
    """
    names, found = find_scores(model, rows, given, scores_from)
    assert names == tuple(classes)
    np.testing.assert_allclose(found, np.asarray(scores, dtype=np.float64), rtol=1e-5, atol=1e-7)
