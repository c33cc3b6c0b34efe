"""``python -m experiments``: the paper's experiments, their tables beside the paper's."""

from experiments.reproduce import Reproduce
from scrib_mlflow.cli import make_command

REPRODUCE = """Run the paper's experiments, and print their tables beside the paper's.

Class-specific excess risk with t-tests, overall risk with the area under the accuracy-ambiguity
curve, unequal targets, one threshold that is certain as often, how the two ambiguities go together,
and optimisers side by side: on the paper's generator and on real data that come with Python
packages, or on any folder of saved model outputs. Minutes with size=small, hours with size=full.

\b
Examples:
  python -m experiments
  python -m experiments --outputs saved --experiments class_risks,by_group
  mlflow run . -e reproduce --env-manager local -P size=full
"""

main = make_command("experiments", Reproduce, REPRODUCE, "experiments.reproduce")

if __name__ == "__main__":
    main(prog_name="python -m experiments")
