"""One module for each command: where the parts meet."""
