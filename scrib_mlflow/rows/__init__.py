"""Tables of rows: reading them, hashing them, and scoring them with a model."""
