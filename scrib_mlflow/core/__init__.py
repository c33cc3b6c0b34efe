"""The mathematics: arrays in, values out. It knows neither MLflow nor tables.

`search` finds thresholds, `optimal` the rule that abstains least, `certificate` proves what either
keeps, `studies` compares rules and targets. What they share lies beside them, from `inputs` (checks
of arrays) over `targets`, `rules`, `bounds` and `counts` to `loss`, `dual` and `reports`.
"""
