"""Watch a certificate after promotion: batches of answers in, evidence against it out.

`make_baseline` keeps what answers looked like when the rule was certified, `begin` starts a
monitor, and `add_batch` carries it on. Every test may be looked at after every batch.
"""

from scrib_mlflow.core.monitoring.baseline import Baseline, Served, make_baseline, served_sets
from scrib_mlflow.core.monitoring.monitor import (
    Alarm,
    Batch,
    BatchRecord,
    Monitor,
    add_batch,
    alarm_at,
    begin,
    evidence_of,
    explain_drift,
)

__all__ = [
    "Alarm",
    "Baseline",
    "Batch",
    "BatchRecord",
    "Monitor",
    "Served",
    "add_batch",
    "alarm_at",
    "begin",
    "evidence_of",
    "explain_drift",
    "make_baseline",
    "served_sets",
]
