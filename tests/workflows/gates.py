"""What tests of the gate look at."""

import mlflow

NAME = "base-scrib"


def champion(alias="champion"):
    return str(mlflow.MlflowClient().get_registered_model(NAME).aliases.get(alias, ""))


def tags(version="1"):
    return mlflow.MlflowClient().get_model_version(NAME, version).tags


def failed(done):
    return [check.name for check in done.decision.checks if not check.passed]
