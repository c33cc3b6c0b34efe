"""Engines: where rows are read, scored and counted."""
