"""The paper's double sum as loops over pairs, compiled: any A_t with any readout known here.

    h_ij = (I - u_i w_i^T) diag(a_i) h_{i-1,j},  h_jj = k_j        (k are scaled keys b_j k_j)
           (diag(a_i) - u_i w_i^T) h_{i-1,j} where `early`
    alpha_ij = phi(q_i . h_ij + g_i - g_j),   or   q_i . psi(h_ij) where `psi` is a readout
    y_i = sum_{j <= i} alpha_ij v_j

The keys of a head are an n x L array that every step transforms, as definition.py does. All loops
run over j, in rows of a multiple of LANES; of what a row holds beyond j = i nothing counts.

Arrays are (b, h, t, channels). `a` has no channel (A_t does not decay), one per head, or n; `u` and
`w` have none where A_t does not reflect, `g` none where nothing is added to scores, or two: the
number and what it lost when it was rounded. With `shift`, a
row's largest score, `unit`, is taken off before phi. `rule` says what becomes of a row's sum of
alpha: nothing (ALONE), one more channel of y (BESIDE), or y is divided by it (DIVIDED), a sum below
`least` giving y = 0. Queries are multiplied by `scale`. `kept` has the coefficients themselves,
where it has columns. A call computes the heads from `start` to `end`, counted through the batch.
"""

from typing import Any, no_type_check

import numba as nb
import numpy as np

from coefdyn.mixer.compiled.readouts import NONE, read
from coefdyn.mixer.compiled.rows import (
    LANES,
    ROWS,
    combine,
    exactly,
    inlined,
    inner,
    lanes,
    largest,
)

ALONE, BESIDE, DIVIDED = 0, 1, 2


@inlined
@no_type_check
def transform(keys, taken, a, w, u, m):
    """h_ij from h_{i-1,j}, channel by channel; taken_j = w . diag(a) h_{i-1,j}: unless it reads
    early, `w` has been multiplied by a."""
    decays, one = a.shape[0], keys.dtype.type(1)
    if w.shape[0] == 0:
        for c in range(keys.shape[0]):
            ac = a[c if decays > 1 else 0]
            for j in range(m):
                keys[c, j] *= ac
        return
    combine(keys, w, taken, m)
    for c in range(keys.shape[0]):
        ac, uc = one if decays == 0 else a[c if decays > 1 else 0], u[c]
        for j in range(m):
            keys[c, j] = ac * keys[c, j] - uc * taken[j]


@inlined
@no_type_check
def step_of(a, w, u, early, i, ai, wi, ui):
    """a_i, u_i, and w_i, times a_i unless it reads early."""
    decays, one = a.shape[1], a.dtype.type(1)
    for c in range(decays):
        ai[c] = a[i, c]
    for c in range(w.shape[1]):
        wi[c] = w[i, c] * (one if decays == 0 or early else a[i, c if decays > 1 else 0])
        ui[c] = u[i, c]


@inlined
@no_type_check
def load(source, rows):
    """Steps as columns."""
    for j in range(source.shape[0]):
        for c in range(source.shape[1]):
            rows[c, j] = source[j, c]


@exactly
@no_type_check
def add_difference(s, g, i, m):
    """s_j += g_i - g_j. In another order the digits that rounding lost would be lost again."""
    gi, rest = g[i, 0], g[i, 1]
    for j in range(min(m, g.shape[0])):
        s[j] += (gi - g[j, 0]) + (rest - g[j, 1])


@no_type_check
def pairs(
    q, k, v, a, w, u, g, early, code, psi, polynomial, rule, least, shift, scale, y, unit,
    total, kept, start, end,
):  # fmt: skip
    heads, length, n, p = q.shape[1], q.shape[2], q.shape[3], v.shape[3]
    decays, added, reflects = a.shape[3], g.shape[3] > 0, w.shape[3]
    moves = reflects > 0 or decays > 1 or psi != NONE
    fades = decays == 1 and not moves  # then a factor per pair says it all
    wide, zero, number = lanes(length), q.dtype.type(0), q.dtype
    keys, values = np.zeros((n, wide), number), np.zeros((p, wide), number)
    s, alpha = np.zeros((ROWS, wide), number), np.zeros((ROWS, wide), number)
    spare, factor = np.zeros(wide, number), np.zeros(wide, number)
    features, no_slope = np.zeros((n, wide), number), np.zeros((0, wide), number)
    qi, yi, ai = np.zeros(n, number), np.zeros(p, number), np.zeros(decays, number)
    wi, ui = np.zeros(reflects, number), np.zeros(reflects, number)
    for b_h in range(start, end):
        b, h = b_h // heads, b_h % heads
        load(v[b, h], values)
        if moves:
            keys[:] = 0
        else:
            load(k[b, h], keys)
        factor[:] = 0
        for tile in range(0, length, ROWS):
            m, rows = (tile // LANES + 1) * LANES, min(ROWS, length - tile)
            for r in range(rows):
                i = tile + r
                for c in range(n):
                    qi[c] = scale * q[b, h, i, c]
                if moves:
                    step_of(a[b, h], w[b, h], u[b, h], early, i, ai, wi, ui)
                    if decays > 0 or reflects > 0:
                        transform(keys, spare, ai, wi, ui, m)
                    for c in range(n):
                        keys[c, i] = k[b, h, i, c]
                if psi == NONE:
                    combine(keys, qi, s[r], m)
                else:
                    read(psi, polynomial, keys, features, no_slope, m)
                    combine(features, qi, s[r], m)
                if fades:
                    ac = a[b, h, i, 0]
                    for j in range(m):
                        factor[j] *= ac
                    factor[i] = 1
                    for j in range(m):
                        s[r, j] *= factor[j]
                if added:
                    add_difference(s[r], g[b, h], i, m)
                for j in range(i + 1, m):
                    s[r, j] = s[r, 0]
                if shift:
                    top = largest(s[r], m)
                    unit[b, h, i] = top
                    for j in range(m):
                        s[r, j] -= top
            read(code, polynomial, s[:rows], alpha[:rows], no_slope, m)
            for r in range(rows):
                i = tile + r
                for j in range(i + 1, m):
                    alpha[r, j] = 0
                inner(values, alpha[r], yi, m)
                row_sum = zero
                for j in range(m):
                    row_sum += alpha[r, j]
                for x in range(p):
                    if yi[x] != yi[x]:  # perhaps of a value that is none of this row's
                        yi[x] = 0
                        for j in range(i + 1):
                            yi[x] += alpha[r, j] * values[x, j]
                if rule == DIVIDED:
                    total[b, h, i] = row_sum
                    for x in range(p):
                        y[b, h, i, x] = zero if row_sum < least else yi[x] / row_sum
                else:
                    for x in range(p):
                        y[b, h, i, x] = yi[x]
                    if rule == BESIDE:
                        y[b, h, i, p] = row_sum
                if kept.shape[3] > 0:
                    for j in range(length):
                        kept[b, h, i, j] = alpha[r, j] if j <= i else zero


def types(number: Any) -> Any:
    """Of the arguments: arrays of any strides."""
    arrays = (number[:, :, :, :],) * 7
    rows = (number[:, :, ::1],) * 2  # unit, total
    return (*arrays, *settings(number), arrays[0], *rows, arrays[0], nb.int64, nb.int64)


def settings(number: Any) -> Any:
    """Of early, code, psi, polynomial, rule, least, shift and scale."""
    return nb.boolean, nb.int64, nb.int64, number[::1], nb.int64, number, nb.boolean, number
