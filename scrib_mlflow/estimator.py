"""A set classifier for scikit-learn: a fitted classifier in, answers with a certificate out."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin
from sklearn.exceptions import NotFittedError
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_consistent_length, check_is_fitted, column_or_1d

from scrib_mlflow.core.certificate import fit_certified
from scrib_mlflow.core.certificate.claims import reasons
from scrib_mlflow.core.groups import TestName
from scrib_mlflow.core.inputs import Bools, Floats, labels_for
from scrib_mlflow.core.rules import predict_sets
from scrib_mlflow.core.targets import AnswerName, RuleName, Target
from scrib_mlflow.errors import InvalidLabelsError, InvalidScoresError


def _has_probabilities(self: ScribClassifier) -> bool:
    """Return whether the classifier has probabilities; its own error says why not."""
    getattr(self.estimator, "predict_proba")  # noqa: B009
    return True


class ScribClassifier(ClassifierMixin, MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier that abstains where it must, so that every class keeps its risk target.

    Parameters
    ----------
    estimator : classifier
        Already fitted, with `predict_proba`, or for thresholds with `decision_function`. Where
        scikit-learn clones this object, as in cross-validation, wrap the classifier in
        `sklearn.frozen.FrozenEstimator`.
    risk_targets, rule, overall_target, risk_groups, max_class_abstention, waive, answers, \
confidence, certify_fraction, group_cap, group_test, max_group_rows, max_weight, seed, threads
        As of `scrib_mlflow.fit_certified`; classes are named by their text.
    abstain_label : object
        What `predict` answers where it abstains. None makes an array of objects; a value like the
        labels, such as -1 or "?", keeps their type.

    Attributes
    ----------
    classes_ : (k,) array
    certificate_ : Certificate
        `certificate_.passed` says whether every target is proved.
    rule_ : Rule
    certified_fit_ : CertifiedFit
    n_features_in_ : int
        Where the classifier has it, as `feature_names_in_`.
    """

    def __init__(
        self,
        estimator: Any,
        *,
        risk_targets: Target | None = 0.1,
        rule: RuleName | Literal["auto"] = "auto",
        overall_target: float | None = None,
        risk_groups: Mapping[str, tuple[Sequence[str], float]] | None = None,
        max_class_abstention: Target | None = None,
        waive: Sequence[str] = (),
        answers: AnswerName = "top",
        confidence: float = 0.95,
        certify_fraction: float | None = None,
        group_cap: int | None = None,
        group_test: TestName = "approximate",
        max_group_rows: int | None = None,
        max_weight: float | None = None,
        abstain_label: Any = None,
        seed: int = 0,
        threads: int | None = None,
    ) -> None:
        """Keep the parameters as they are, as scikit-learn asks for."""
        self.estimator = estimator
        self.risk_targets = risk_targets
        self.rule = rule
        self.overall_target = overall_target
        self.risk_groups = risk_groups
        self.max_class_abstention = max_class_abstention
        self.waive = waive
        self.answers = answers
        self.confidence = confidence
        self.certify_fraction = certify_fraction
        self.group_cap = group_cap
        self.group_test = group_test
        self.max_group_rows = max_group_rows
        self.max_weight = max_weight
        self.abstain_label = abstain_label
        self.seed = seed
        self.threads = threads

    def fit(
        self,
        X: Any,  # noqa: N803  # scikit-learn's name
        y: ArrayLike,
        *,
        sample_weight: ArrayLike | None = None,
        groups: ArrayLike | None = None,
        keys: ArrayLike | None = None,
        X_path: Any = None,  # noqa: N803
    ) -> ScribClassifier:
        """Calibrate the classifier on rows that it was not trained on, and certify the result.

        Parameters
        ----------
        X : array or table of rows
            As the classifier takes them.
        y : (n,) array
            Their classes.
        sample_weight, groups, keys : (n,) arrays, optional
            As of `fit_certified`.
        X_path : array or table of rows, optional
            Further rows without labels that draw the path of rules to test.

        Returns
        -------
        ScribClassifier
            This one. A warning says where nothing is certified.
        """
        classes = getattr(self.estimator, "classes_", None)
        if classes is None:
            raise NotFittedError(
                f"{type(self.estimator).__name__} is not fitted: fit it first, on other rows than "
                "these, which only calibrate it; where scikit-learn clones, wrap it in "
                "sklearn.frozen.FrozenEstimator"
            )
        if y is None:
            raise InvalidLabelsError(
                "this classifier requires y to be passed, but the target y is None"
            )
        truth = column_or_1d(y, warn=True)
        check_consistent_length(X, truth)
        check_classification_targets(truth)
        self.classes_ = np.asarray(classes)
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(self.estimator, name):
                setattr(self, name, getattr(self.estimator, name))
        options = self.get_params(deep=False)
        del options["estimator"], options["abstain_label"]
        names = tuple(str(name) for name in self.classes_.tolist())
        self.certified_fit_ = fit_certified(
            self._scores(X),
            labels_for(self._indices(truth), names),
            classes=names,
            path_scores=None if X_path is None else self._scores(X_path),
            groups=groups,
            keys=keys,
            sample_weight=sample_weight,
            **options,
        )
        self.certificate_ = self.certified_fit_.certificate
        self.rule_ = self.certified_fit_.rule
        if not self.certificate_.passed:
            warnings.warn(
                f"nothing is certified: {'; '.join(reasons(self.certificate_))}", stacklevel=2
            )
        return self

    def predict_sets(self, X: Any) -> Bools:  # noqa: N803
        """Return (n, k) which classes are in the set of each row, in the order of `classes_`."""
        check_is_fitted(self, "certified_fit_")
        return predict_sets(self._scores(X), self.rule_)

    def predict(self, X: Any) -> NDArray[Any]:  # noqa: N803
        """Return the class of each row, `abstain_label` where its set has not one member."""
        sets = self.predict_sets(X)
        kind = np.object_ if self.abstain_label is None else None
        answers = np.array([*self.classes_.tolist(), self.abstain_label], dtype=kind)
        certain = np.count_nonzero(sets, axis=1) == 1
        return answers[np.where(certain, sets.argmax(axis=1), len(self.classes_))]

    @available_if(_has_probabilities)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> Floats:  # noqa: N803
        """Return (n, k) the classifier's own probabilities."""
        check_is_fitted(self, "certified_fit_")
        return self.estimator.predict_proba(X)

    def score(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:  # noqa: N803
        """Return the share of rows that are answered, and rightly."""
        right = self.predict(X) == column_or_1d(y)
        weights = None if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
        return float(np.average(right, weights=weights))

    def __sklearn_tags__(self) -> Any:
        """Return what scikit-learn may know: rows may be sparse where the classifier takes them."""
        tags = super().__sklearn_tags__()
        if hasattr(self.estimator, "__sklearn_tags__"):
            tags.input_tags.sparse = self.estimator.__sklearn_tags__().input_tags.sparse
        return tags

    def _scores(self, X: Any) -> Floats:  # noqa: N803
        """Return the scores of rows, a column a class."""
        if hasattr(self.estimator, "predict_proba"):
            return np.asarray(self.estimator.predict_proba(X), dtype=np.float64)
        if not hasattr(self.estimator, "decision_function") or self.rule == "optimal":
            needed = "predict_proba"
            needed += "" if self.rule == "optimal" else " or decision_function"
            raise InvalidScoresError(f"{type(self.estimator).__name__} has no {needed}")
        values = np.asarray(self.estimator.decision_function(X), dtype=np.float64)
        if values.ndim == 1:
            values = np.column_stack([-values, values])
        if values.shape[1] != len(self.classes_):
            raise InvalidScoresError(
                f"decision_function has {values.shape[1]} columns for {len(self.classes_)} "
                "classes; it must have one a class (decision_function_shape='ovr')"
            )
        return values

    def _indices(self, labels: NDArray[Any]) -> NDArray[np.int32]:
        """Return the classes of rows by their place among those of the classifier."""
        place = {name: j for j, name in enumerate(self.classes_.tolist())}
        found = [place.get(label, -1) for label in labels.tolist()]
        if -1 in found:
            row = found.index(-1)
            raise InvalidLabelsError(
                f"y[{row}] is {labels[row]!r}, but the classifier knows {[*place]} only"
            )
        return np.array(found, dtype=np.int32)
