"""The paper's experiments, on arrays."""
