"""The compiled kernels, ready to be called: types, cache, threads."""

import contextlib
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
from typing import Any, Literal

import torch
from torch import Tensor

log = logging.getLogger(__name__)

Name = Literal["scan", "pairs"]
Way = Literal["forward", "backward"]
# Heads that one thread must have for a second one to pay.
HEADS_PER_THREAD = 4


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


def run(name: Name, way: Way, like: Tensor, *arguments: Any) -> None:
    """The kernel on all heads of all sequences (the first two axes of `like`), on as many threads
    as torch uses now. No head's numbers depend on which thread computes them."""
    compiled, heads = kernel(name, way, like.dtype), like.shape[0] * like.shape[1]
    threads = min(torch.get_num_threads(), max(1, heads // HEADS_PER_THREAD))
    if threads == 1:
        compiled(*arguments, 0, heads)
        return
    borders = [heads * i // threads for i in range(threads + 1)]
    others = [
        _pool(os.getpid()).submit(compiled, *arguments, *borders[i : i + 2])
        for i in range(1, threads)
    ]
    compiled(*arguments, *borders[:2])
    for other in others:
        other.result()


@cache
def kernel(name: Name, way: Way, dtype: torch.dtype) -> Callable[..., None]:
    """A kernel for arrays of any strides; compiled now unless the cache on disk has it.

    One set of types per dtype, whatever the strides: each would be compiled again.
    """
    import numba as nb

    module: Any = importlib.import_module(f"coefdyn.mixer.compiled.{name}")
    options = {"fastmath": module.FAST, "error_model": "numpy", "nogil": True}
    with _cached_by_content():
        try:
            made = nb.njit(cache=True, **options)(getattr(module, way))
        except RuntimeError:  # no place for a cache can be written to
            made = nb.njit(**options)(getattr(module, way))
    started = time.perf_counter()
    made.compile(module.types(way, nb.float64 if dtype == torch.float64 else nb.float32))
    seconds = time.perf_counter() - started
    if seconds > 1:
        log.info("compiled %s %s for %s in %.0f s", name, way, dtype, seconds)
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
def _pool(process: int) -> ThreadPoolExecutor:
    """Of a process: a forked child does not inherit its parent's threads."""
    return ThreadPoolExecutor(max(1, (os.cpu_count() or 1) - 1), thread_name_prefix="kernel")
