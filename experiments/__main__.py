"""``python -m experiments``: the paper's experiments, their tables beside the paper's."""

from experiments.reproduce import Reproduce
from scrib_mlflow.cli import Command

REPRODUCE = """Run the paper's experiments, and print their tables next to the paper's.

The experiments: excess risk by class with t-tests, overall risk with the area under the
accuracy-ambiguity curve, unequal targets, one threshold that is certain as often, how the two
ambiguities go together, and a comparison of optimisers. They run on the paper's generator and on
real data that come with Python packages, or on a folder of saved model outputs. Size small takes
minutes, size full hours.

\b
Examples:
  python -m experiments
  python -m experiments --outputs saved --experiments class_risks,by_group
  mlflow run . -e reproduce --env-manager local -P size=full
"""

main = Command("experiments", Reproduce, REPRODUCE, "experiments.reproduce")

if __name__ == "__main__":
    main(prog_name="python -m experiments")
