"""The paper's experiments. Not part of the installed package."""
