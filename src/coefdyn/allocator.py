"""Memory allocation of processes that train or measure on a CPU."""

import ctypes
import sys

# Parameters of glibc's mallopt.
TRIM_THRESHOLD, TOP_PAD, MMAP_MAX = -1, -2, -4


def keep_freed_memory() -> bool:
    """Make the C library keep the memory that tensors free. Returns whether it accepted.

    By default glibc returns blocks above 32 MB to the system. The next tensor then gets new pages,
    which the system must zero. On long sequences that takes up to a third of a training step.
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # not glibc
        return False
    accepted = [mallopt(MMAP_MAX, 0), mallopt(TRIM_THRESHOLD, 2**31 - 1), mallopt(TOP_PAD, 2**26)]
    return all(accepted)
