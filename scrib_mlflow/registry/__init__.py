"""MLflow: stores, runs, registered models, aliases and the ledger of used rows."""
