"""The certificate: split the rows, draw a path of rules, test it in a fixed order."""

from scrib_mlflow.core.certificate.certified import CertifiedFit, expected_rows, fit_certified
from scrib_mlflow.core.certificate.claims import (
    Certificate,
    Claim,
    Tally,
    certify_sets,
    make_certificate,
    tally_sets,
)
from scrib_mlflow.core.certificate.path import Path, certify_path, draw_path
from scrib_mlflow.core.certificate.plan import Plan, make_plan
from scrib_mlflow.core.certificate.split import Sample, split_rows

__all__ = [
    "Certificate",
    "CertifiedFit",
    "Claim",
    "Path",
    "Plan",
    "Sample",
    "Tally",
    "certify_path",
    "certify_sets",
    "draw_path",
    "expected_rows",
    "fit_certified",
    "make_certificate",
    "make_plan",
    "split_rows",
    "tally_sets",
]
