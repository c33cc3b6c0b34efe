"""``python -m scrib_mlflow``."""

from scrib_mlflow.cli import main

if __name__ == "__main__":
    main(prog_name="python -m scrib_mlflow")
