"""Arrays in, values out: sets, risks, bounds and the search. NumPy, SciPy and Numba only."""
