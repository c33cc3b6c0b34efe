"""One module for each command: where the rooms meet."""
