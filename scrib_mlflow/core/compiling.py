"""How kernels are compiled, and how BLAS keeps out of their way while they run."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from numba import njit

Function = Callable[..., Any]

_lock = threading.Lock()
_under_way: list[None] = []  # calls inside `one_blas_thread`, of all threads
_limits = ExitStack()


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


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Keep BLAS to one thread inside; also a decorator.

    The matrices here are small, and threads of BLAS that wait for work spin: they take the cores
    that kernels, or other processes, could use. The first call in sets the limit and the last one
    out lifts it, because calls of several threads overlap.
    """
    with _lock:
        if not _under_way:
            _limits.enter_context(_thread_pools().limit(limits=1, user_api="blas"))
        _under_way.append(None)
    try:
        yield
    finally:
        with _lock:
            _under_way.pop()
            if not _under_way:
                _limits.close()


@functools.cache
def _thread_pools() -> Any:
    """Return the thread pools of this process; finding them takes milliseconds."""
    from threadpoolctl import ThreadpoolController  # noqa: PLC0415  # only where there is work

    return ThreadpoolController()
