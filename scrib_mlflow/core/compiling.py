"""How kernels are compiled: without the interpreter lock, and kept on disk where they can be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import njit

Function = Callable[..., Any]


def kernel(function: Function) -> Function:
    """Compile a function on its first call.

    Numba keeps the result beside the source file or, where that is read-only, in the user's cache
    directory. Where neither can be written to, every process compiles anew.
    """
    return _compiled(function, inline="never", no_cpython_wrapper=False)


def inner(function: Function) -> Function:
    """Compile a function that only kernels call; leaving out its Python entry saves seconds."""
    return _compiled(function, inline="never", no_cpython_wrapper=True)


def inlined(function: Function) -> Function:
    """Compile a small function into its callers: a call with arrays costs more than its work."""
    return _compiled(function, inline="always", no_cpython_wrapper=True)


def _compiled(function: Function, **options: Any) -> Function:
    compiler: Any = njit  # its stubs leave out the options on wrappers
    options |= {"nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True}
    try:
        return compiler(cache=True, **options)(function)
    except RuntimeError:  # no directory to cache in
        return compiler(**options)(function)
