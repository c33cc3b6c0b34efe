"""MLflow's side: everything that is read from a store or written to one.

`stores` looks up models, `runs` logs, `models` logs, registers and reads back set classifiers,
`alias` moves a registry alias, `ledger` counts how often rows have certified. No sentences here
but those of errors.
"""
