"""Figures of the paper, as it prints them, beside which ours stand.

Lin et al., "SCRIB: Set-classifier with Class-specific Risk Bounds for Blackbox Models". Rates are
in percent where the paper has percent.
"""

from __future__ import annotations

TOP_RISK = "roughly 25 %"  # of its generator without abstention
# Mean excess of the class risks, %: SGR, LABEL, SCRIB-, SCRIB and the p-value against the best.
EXCESS = {
    "X-ray": ("5.67", "6.43", "13.69", "3.71", "0.34"),
    "ISRUC": ("8.60", "4.23", "8.79", "1.78", "0.01"),
    "Sleep-EDF": ("16.90", "7.21", "16.32", "0.89", "3e-8"),
    "ECG": ("46.23", "21.58", "7.71", "0.90", "6e-12"),
}
# The same where recordings or subjects stay whole.
EXCESS_BY_GROUP = {
    "ISRUC": ("8.55", "5.48", "9.06", "2.54", "8e-4"),
    "Sleep-EDF": ("18.18", "9.93", "17.43", "7.45", "0.21"),
    "ECG": ("42.98", "21.62", "7.71", "2.55", "1e-6"),
}
# Chance ambiguity, then size ambiguity: SGR, LABEL, SCRIB-, SCRIB.
AMBIGUITY = {
    "X-ray": ("0.56", "0.38", "0.78", "0.64", "2.67", "1.38", "2.83", "2.31"),
    "ISRUC": ("0.43", "0.42", "0.30", "0.71", "2.72", "1.45", "1.33", "1.81"),
    "Sleep-EDF": ("0.01", "0.20", "0.03", "0.34", "1.05", "1.25", "1.05", "1.68"),
    "ECG": ("0.97", "0.66", "0.57", "0.80", "3.91", "1.67", "2.70", "3.39"),
}
# Area under the accuracy-ambiguity curve, %: SGR, SGR on dropout, SCRIB.
AUC = {
    "synthetic": ("90.12 ± 0.43", "-", "89.89 ± 0.43"),
    "X-ray": ("89.39 ± 0.54", "-", "89.32 ± 0.56"),
    "ISRUC": ("87.55 ± 0.71", "88.60 ± 0.56", "90.77 ± 0.74"),
    "Sleep-EDF": ("96.50 ± 0.60", "96.48 ± 0.51", "96.62 ± 0.65"),
    "ECG": ("77.03 ± 2.13", "-", "82.55 ± 0.67"),
}
# Root mean square of realised less asked-for overall risk, %: SGR, SGR on dropout, SCRIB.
RMSE = {
    "synthetic": ("0.72 ± 0.40", "-", "0.71 ± 0.20"),
    "X-ray": ("2.43 ± 0.88", "-", "2.31 ± 0.98"),
    "ISRUC": ("1.56 ± 0.99", "1.78 ± 1.14", "1.74 ± 0.95"),
    "Sleep-EDF": ("2.59 ± 1.50", "2.38 ± 1.00", "2.54 ± 1.53"),
    "ECG": ("7.52 ± 2.27", "-", "4.9 ± 2.15"),
}
# Overall risk in Figure 2, %: SGR, LABEL, SCRIB.
UNEQUAL_OVERALL = {"ISRUC": ("4.8", "11", "7.6"), "Sleep-EDF": ("4.5", "6.8", "4.4")}
# Correlation of chance and size ambiguity, %: Pearson, Spearman.
CORRELATION = {
    "X-ray": ("90.07 ± 0.73", "90.74 ± 0.92"),
    "ISRUC": ("85.46 ± 0.94", "85.56 ± 1.17"),
    "Sleep-EDF": ("82.82 ± 0.98", "81.08 ± 1.23"),
    "ECG": ("90.28 ± 0.58", "91.39 ± 0.78"),
}
# Final loss: Bayesian, TNC, Powell, L-BFGS-B, the descent without and with probing.
LOSS = {
    "X-ray": ("118 ± 93", "338 ± 197", "5.0 ± 4.2", "339 ± 197", "2.9 ± 2.7", "0.70 ± 0.012"),
    "ISRUC": ("544 ± 185", "1356 ± 736", "3.1 ± 6.7", "1356 ± 736", "2.0 ± 2.9", "0.73 ± 0.33"),
    "Sleep-EDF": (
        "1189 ± 290",
        "2116 ± 2144",
        "798 ± 3384",
        "2117 ± 2144",
        "0.43 ± 0.20",
        "0.35 ± 0.010",
    ),
    "ECG": ("342 ± 56", "895 ± 211", "41 ± 34", "895 ± 211", "2.1 ± 3.0", "0.78 ± 0.013"),
}
# Seconds of the same.
SECONDS = {
    "X-ray": ("31", "0.039", "1.51", "0.019", "0.10", "1.43"),
    "ISRUC": ("48", "0.22", "14", "0.097", "3.8", "10"),
    "Sleep-EDF": ("46", "14", "96", "1.2", "6.3", "35"),
    "ECG": ("30", "0.063", "2.9", "0.031", "0.57", "2.3"),
}
