"""The compiled kernels, ready to be called: types, cache, threads."""

import contextlib
import ctypes
import hashlib
import importlib
import importlib.util
import logging
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

log = logging.getLogger(__name__)

OWN_FILES = ("pairs", "pairs_back", "scan", "scan_back")
DTYPES = {torch.float32: np.float32, torch.float64: np.float64}
MEMORY = ctypes.c_char * 2**46  # from some address on; strides and shapes say how much of it


_SWITCHED_OFF: list[str] = []


@contextlib.contextmanager
def without_kernels() -> Iterator[None]:
    """As where numba is not installed: what compiled loops are measured and tested against."""
    _SWITCHED_OFF.append("compiled loops are switched off")
    try:
        yield
    finally:
        _SWITCHED_OFF.pop()


def absence() -> str | None:
    """Why nothing can be compiled here, or None if it can."""
    return _SWITCHED_OFF[-1] if _SWITCHED_OFF else _absence_of_numba()


@cache
def _absence_of_numba() -> str | None:
    if importlib.util.find_spec("numba") is None:
        return "numba is not installed (pip install numba)"
    try:
        importlib.import_module("numba")
    except Exception as error:  # a numba that does not fit numpy raises whatever it likes
        return f"numba cannot be imported: {' '.join(str(error).split())}"
    return None


def fits(*tensors: Tensor | None) -> bool:
    """Whether kernels can compute with these: on a CPU, in a precision they have, now."""
    return absence() is None and not torch.compiler.is_compiling() and all(
        x is None or (x.device.type == "cpu" and x.dtype in DTYPES) for x in tensors
    )  # fmt: skip


def run(name: str, dtype: torch.dtype, count: int, *arguments: Any) -> None:
    """The kernel of that name on `count` independent pieces of work, on as many threads as torch
    uses now. No piece's numbers depend on which thread computes them."""
    compiled, threads = kernel(name, dtype), min(torch.get_num_threads(), count)
    arrays = [view(x) if isinstance(x, Tensor) else x for x in arguments]
    if threads == 1:
        compiled(*arrays, 0, count)
        return
    borders = [count * i // threads for i in range(threads + 1)]
    others = [_pool().submit(compiled, *arrays, *borders[i : i + 2]) for i in range(1, threads)]
    compiled(*arrays, *borders[:2])
    for other in others:
        other.result()


def view(x: Tensor) -> np.ndarray:
    """A tensor as numpy sees it. torch's own way there is four calls of operators."""
    size = x.element_size()
    if x.numel() == 0:
        return np.empty(x.shape, DTYPES[x.dtype])
    memory: Any = MEMORY.from_address(x.data_ptr())
    return np.ndarray(x.shape, DTYPES[x.dtype], memory, 0, [size * n for n in x.stride()])


@cache
def kernel(name: str, dtype: torch.dtype) -> Callable[..., None]:
    """A kernel, of the file of its name or of layers.py; compiled now unless the cache on disk has
    it.

    One set of types per dtype, whatever the strides: each would be compiled again.
    """
    import numba as nb

    from coefdyn.mixer.compiled.rows import FAST

    number = nb.float64 if dtype == torch.float64 else nb.float32
    file = name if name in OWN_FILES else "layers"
    module: Any = importlib.import_module(f"coefdyn.mixer.compiled.{file}")
    function, types = getattr(module, name), module.types(number)
    options: Any = {"fastmath": FAST, "error_model": "numpy", "nogil": True}
    with _cached_by_content():
        try:
            made = nb.njit(cache=True, **options)(function)
        except RuntimeError:  # no place for a cache can be written to
            made = nb.njit(**options)(function)
    started = time.perf_counter()
    made.compile(types if file == name else types[name])
    seconds = time.perf_counter() - started
    if seconds > 1:
        log.info("compiled %s for %s in %.0f s", name, dtype, seconds)
    made.disable_compile()
    return made


@contextlib.contextmanager
def _cached_by_content() -> Iterator[None]:
    """numba's cache sees edits of the file that a kernel stands in, not of those it calls
    functions of: a folder for each content of all of them."""
    import numba as nb

    files = sorted(Path(__file__).parent.glob("*.py"))
    digest = hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:16]
    config: Any = nb.config
    before = config.CACHE_DIR
    root = Path(before) if before else _user_cache()
    config.CACHE_DIR = str(root / digest)
    try:
        yield
    finally:
        config.CACHE_DIR = before


def _user_cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "coefdyn" / "kernels"


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max(1, (os.cpu_count() or 1) - 1), thread_name_prefix="kernel")


# A forked child does not inherit its parent's threads.
os.register_at_fork(after_in_child=_pool.cache_clear)
