"""Figures of the search: how good its losses are, how fast it is, how it grows and starts."""
