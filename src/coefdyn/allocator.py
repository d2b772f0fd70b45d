"""Memory of the process, for entry points that train or measure on a CPU."""

import ctypes
import sys

# Parameters of glibc's mallopt.
TRIM_THRESHOLD, TOP_PAD, MMAP_MAX = -1, -2, -4


def keep_freed_memory() -> bool:
    """Let the C library keep what tensors free, and say whether it could be told to.

    By default glibc hands blocks above 32 MB back to the system and gets fresh pages, to be zeroed
    again, for the next tensor: on long sequences that takes up to a third of a training step.
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # not glibc
        return False
    taken = [mallopt(MMAP_MAX, 0), mallopt(TRIM_THRESHOLD, 2**31 - 1), mallopt(TOP_PAD, 2**26)]
    return all(taken)
