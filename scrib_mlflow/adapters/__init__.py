"""The code that touches MLflow stores, files and figures."""
