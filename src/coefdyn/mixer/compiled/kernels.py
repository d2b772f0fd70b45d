"""The compiled kernels, ready to be called: types, cache, threads."""

import importlib
import importlib.util
import logging
import time
from functools import cache
from typing import Any, Literal

import torch

log = logging.getLogger(__name__)

Name = Literal["scan", "pairs"]


@cache
def absence() -> str | None:
    """Why nothing can be compiled here, or None if it can."""
    if importlib.util.find_spec("numba") is None:
        return "numba is not installed (pip install numba)"
    try:
        importlib.import_module("numba")
    except Exception as error:  # a numba that does not fit numpy raises whatever it likes
        return f"numba cannot be imported: {' '.join(str(error).split())}"
    return None


@cache
def kernel(name: Name, way: Literal["forward", "backward"], dtype: torch.dtype) -> Any:
    """A kernel for arrays of any strides; compiled now unless a cache on disk has it.

    One set of types per dtype, whatever the strides: each would be compiled again.
    """
    import numba as nb

    module: Any = importlib.import_module(f"coefdyn.mixer.compiled.{name}")
    function = getattr(module, way)
    try:
        made = nb.njit(cache=True, **module.OPTIONS)(function)
    except RuntimeError:  # no place for a cache can be written to
        made = nb.njit(**module.OPTIONS)(function)
    started = time.perf_counter()
    made.compile(module.types(way, nb.float64 if dtype == torch.float64 else nb.float32))
    seconds = time.perf_counter() - started
    if seconds > 1:
        log.info("compiled %s %s for %s in %.0f s", name, way, dtype, seconds)
    made.disable_compile()
    return made


def follow_threads() -> None:
    """numba has a number of threads of its own; the call at hand takes torch's."""
    import numba as nb

    most: int = getattr(nb.config, "NUMBA_NUM_THREADS")  # noqa: B009  mypy does not know it
    nb.set_num_threads(min(torch.get_num_threads(), most))
