"""How kernels are compiled, and how BLAS keeps out of their way while they run."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

Function = Callable[..., Any]

_lock = threading.Lock()
_waiting: list[Kernel] = []  # not compiled yet
_known: list[Kernel] = []
_under_way: list[None] = []  # calls inside `one_blas_thread`, of all threads
_limits = ExitStack()


class Kernel:
    """A function that is compiled on its first call; numba is not loaded before.

    Compiled code calls compiled code only, so all kernels that are known by then take the place of
    their stand-ins in the modules where they stand.
    """

    def __init__(self, function: Function, **options: Any) -> None:
        """Stand in for a compiled function."""
        functools.update_wrapper(self, function)
        self.py_func = function  # its plain Python, under the name that numba has for it
        self._options = options
        self._compiled: Any = None
        _waiting.append(self)

    def __call__(self, *values: Any) -> Any:
        """Call the compiled function."""
        return (self._compiled or self.compiled())(*values)

    def compiled(self) -> Any:
        """Return what numba makes of the function."""
        with _lock:
            while _waiting:
                each = _waiting.pop()
                each._compiled = _compile(each.py_func, **each._options)
                _known.append(each)
            for each in _known:
                names = each.py_func.__globals__
                for name, value in [*names.items()]:
                    if isinstance(value, Kernel):
                        names[name] = value._compiled
        return self._compiled


def kernel(function: Function) -> Function:
    """Compile a function on its first call.

    Numba keeps the result beside the source file or, where that is read-only, in the user's cache
    directory. Where neither can be written to, every process compiles anew.
    """
    return Kernel(function, inline="never", no_cpython_wrapper=False)


def inner(function: Function) -> Function:
    """Compile a function that only kernels call; leaving out its Python entry saves seconds."""
    return Kernel(function, inline="never", no_cpython_wrapper=True)


def inlined(function: Function) -> Function:
    """Compile a small function into its callers: a call with arrays costs more than its work."""
    return Kernel(function, inline="always", no_cpython_wrapper=True)


def _compile(function: Function, **options: Any) -> Function:
    from numba import njit  # noqa: PLC0415  # half a second that only fits need

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
