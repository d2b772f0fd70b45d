"""Products of rows, compiled: what the loops over pairs are made of.

A row's length is a multiple of LANES: a loop of another length ends in steps of one. The arrays of
one call do not overlap.
"""

from typing import Any, no_type_check

import numba as nb
from numba.core.compiler import Flags
from numba.core.cpu import CPUTargetOptions
from numba.core.options import TargetOptions

LANES = 16
ROWS = 8  # of a tile, which lies within one block of lanes

# Without those that would lose a NaN or an infinity.
FAST = {"reassoc", "contract", "arcp", "nsz"}


def _apart() -> dict[str, Any]:
    """That the arrays of a call do not overlap: numba has a flag for it and no option. Without it
    each loop looks for overlaps before it goes on as vector code, which takes a fifth of the time
    and twice as long to compile."""
    if not hasattr(Flags, "noalias"):
        return {}
    mapping: Any = TargetOptions.Mapping
    CPUTargetOptions.noalias = mapping("noalias")
    return {"noalias": True}


APART = _apart()
jit: Any = nb.njit  # mypy does not know the flag
inlined = jit(fastmath=FAST, error_model="numpy", forceinline=True, **APART)
exactly = nb.njit(fastmath={"contract"}, error_model="numpy", forceinline=True)


@inlined
@no_type_check
def lanes(length):
    return (length + LANES - 1) // LANES * LANES


@nb.njit(fastmath=FAST | {"nnan"}, error_model="numpy", forceinline=True)
@no_type_check
def largest(s, m):
    """Of what is no NaN; where all are, a NaN. (A loop that cares for them is no vector code.)"""
    found = s[0]
    for j in range(m):
        found = max(found, s[j])
    return found


@inlined
@no_type_check
def combine(rows, weights, out, m):
    """out_j = sum_c weights_c rows_cj. Eight rows at a time: out is read and written less often."""
    count = rows.shape[0]
    c = count % 8
    if c == 0 and count > 0:
        w0, w1, w2, w3 = weights[0], weights[1], weights[2], weights[3]
        w4, w5, w6, w7 = weights[4], weights[5], weights[6], weights[7]
        for j in range(m):
            out[j] = ((w0 * rows[0, j] + w1 * rows[1, j]) + (w2 * rows[2, j] + w3 * rows[3, j])) + (
                (w4 * rows[4, j] + w5 * rows[5, j]) + (w6 * rows[6, j] + w7 * rows[7, j])
            )
        c = 8
    else:
        for j in range(m):
            out[j] = 0
        for d in range(c):
            w0 = weights[d]
            for j in range(m):
                out[j] += w0 * rows[d, j]
    while c + 8 <= count:
        w0, w1, w2, w3 = weights[c], weights[c + 1], weights[c + 2], weights[c + 3]
        w4, w5, w6, w7 = weights[c + 4], weights[c + 5], weights[c + 6], weights[c + 7]
        for j in range(m):
            out[j] += (
                (w0 * rows[c, j] + w1 * rows[c + 1, j])
                + (w2 * rows[c + 2, j] + w3 * rows[c + 3, j])
            ) + (
                (w4 * rows[c + 4, j] + w5 * rows[c + 5, j])
                + (w6 * rows[c + 6, j] + w7 * rows[c + 7, j])
            )
        c += 8


@inlined
@no_type_check
def inner(rows, s, out, m):
    """out_c = sum_j rows_cj s_j, four at a time."""
    zero, count = s.dtype.type(0), rows.shape[0]
    c = 0
    while c + 4 <= count:
        t0, t1, t2, t3 = zero, zero, zero, zero
        for j in range(m):
            x = s[j]
            t0 += x * rows[c, j]
            t1 += x * rows[c + 1, j]
            t2 += x * rows[c + 2, j]
            t3 += x * rows[c + 3, j]
        out[c], out[c + 1], out[c + 2], out[c + 3] = t0, t1, t2, t3
        c += 4
    while c < count:
        t0 = zero
        for j in range(m):
            t0 += s[j] * rows[c, j]
        out[c] = t0
        c += 1


@inlined
@no_type_check
def spread(rows, weights, s, m):
    """rows_cj += sum_r weights_rc s_rj over the ROWS rows of a tile."""
    for c in range(rows.shape[0]):
        w0, w1, w2, w3 = weights[0, c], weights[1, c], weights[2, c], weights[3, c]
        w4, w5, w6, w7 = weights[4, c], weights[5, c], weights[6, c], weights[7, c]
        for j in range(m):
            rows[c, j] += ((w0 * s[0, j] + w1 * s[1, j]) + (w2 * s[2, j] + w3 * s[3, j])) + (
                (w4 * s[4, j] + w5 * s[5, j]) + (w6 * s[6, j] + w7 * s[7, j])
            )
