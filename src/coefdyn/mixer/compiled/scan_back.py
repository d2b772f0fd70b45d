"""The gradients of compiled/scan.py. Its docstring says what the arrays are."""

from typing import Any, no_type_check

import numba as nb
import numpy as np

from coefdyn.mixer.compiled.rows import inlined, lanes
from coefdyn.mixer.compiled.scan import ALONE, BESIDE, DIVIDED, WA, A, K, Q, U, W, load


@inlined
@no_type_check
def step_of_rows(rows, x, vt, at, reflects, taken):
    """Four columns of M, as rows over c: M_t from M_{t-1}, in place; what u takes off."""
    v0, v1, v2, v3 = vt[x], vt[x + 1], vt[x + 2], vt[x + 3]
    if not reflects:
        for c in range(rows.shape[1]):
            rows[x, c] = at[A, c] * rows[x, c] + at[K, c] * v0
            rows[x + 1, c] = at[A, c] * rows[x + 1, c] + at[K, c] * v1
            rows[x + 2, c] = at[A, c] * rows[x + 2, c] + at[K, c] * v2
            rows[x + 3, c] = at[A, c] * rows[x + 3, c] + at[K, c] * v3
        return
    zero = rows.dtype.type(0)
    t0, t1, t2, t3 = zero, zero, zero, zero
    for c in range(rows.shape[1]):
        t0 += at[WA, c] * rows[x, c]
        t1 += at[WA, c] * rows[x + 1, c]
        t2 += at[WA, c] * rows[x + 2, c]
        t3 += at[WA, c] * rows[x + 3, c]
    taken[x], taken[x + 1], taken[x + 2], taken[x + 3] = t0, t1, t2, t3
    for c in range(rows.shape[1]):
        rows[x, c] = at[A, c] * rows[x, c] - at[U, c] * t0 + at[K, c] * v0
        rows[x + 1, c] = at[A, c] * rows[x + 1, c] - at[U, c] * t1 + at[K, c] * v1
        rows[x + 2, c] = at[A, c] * rows[x + 2, c] - at[U, c] * t2 + at[K, c] * v2
        rows[x + 3, c] = at[A, c] * rows[x + 3, c] - at[U, c] * t3 + at[K, c] * v3


@inlined
@no_type_check
def back_through_reading(d, x, after, at, vt, dyt, dqt, dkt, dvt):
    """d, the gradient of M_t, gets what y_t adds to four of its rows; those of q, k, v follow."""
    zero = d.dtype.type(0)
    g0, g1, g2, g3 = dyt[x], dyt[x + 1], dyt[x + 2], dyt[x + 3]
    v0, v1, v2, v3 = vt[x], vt[x + 1], vt[x + 2], vt[x + 3]
    s0, s1, s2, s3 = zero, zero, zero, zero
    for c in range(d.shape[1]):
        d0, d1 = d[x, c] + at[Q, c] * g0, d[x + 1, c] + at[Q, c] * g1
        d2, d3 = d[x + 2, c] + at[Q, c] * g2, d[x + 3, c] + at[Q, c] * g3
        d[x, c], d[x + 1, c], d[x + 2, c], d[x + 3, c] = d0, d1, d2, d3
        dqt[c] += (after[x, c] * g0 + after[x + 1, c] * g1) + (
            after[x + 2, c] * g2 + after[x + 3, c] * g3
        )
        dkt[c] += (d0 * v0 + d1 * v1) + (d2 * v2 + d3 * v3)
        s0 += d0 * at[K, c]
        s1 += d1 * at[K, c]
        s2 += d2 * at[K, c]
        s3 += d3 * at[K, c]
    dvt[x], dvt[x + 1], dvt[x + 2], dvt[x + 3] = s0, s1, s2, s3


@inlined
@no_type_check
def back_through_reflection(d, x, before, at, taken, dwt, dut, early, d_taken):
    """The gradients of u and w, and of what w takes, from the same rows of d. These become the
    gradient of diag(a) M_{t-1}; where `early`, that is left to `back_through_early`."""
    zero = d.dtype.type(0)
    t0, t1, t2, t3 = taken[x], taken[x + 1], taken[x + 2], taken[x + 3]
    s0, s1, s2, s3 = zero, zero, zero, zero
    for c in range(d.shape[1]):
        dut[c] -= (d[x, c] * t0 + d[x + 1, c] * t1) + (d[x + 2, c] * t2 + d[x + 3, c] * t3)
        s0 += d[x, c] * at[U, c]
        s1 += d[x + 1, c] * at[U, c]
        s2 += d[x + 2, c] * at[U, c]
        s3 += d[x + 3, c] * at[U, c]
    if early:
        d_taken[0], d_taken[1], d_taken[2], d_taken[3] = s0, s1, s2, s3
        for c in range(d.shape[1]):
            dwt[c] -= (before[x, c] * s0 + before[x + 1, c] * s1) + (
                before[x + 2, c] * s2 + before[x + 3, c] * s3
            )
        return
    for c in range(d.shape[1]):
        dwt[c] -= (before[x, c] * s0 + before[x + 1, c] * s1) + (
            before[x + 2, c] * s2 + before[x + 3, c] * s3
        )
        d[x, c] -= at[W, c] * s0
        d[x + 1, c] -= at[W, c] * s1
        d[x + 2, c] -= at[W, c] * s2
        d[x + 3, c] -= at[W, c] * s3


@inlined
@no_type_check
def back_through_early(d, x, at, d_taken):
    """What w has read of M_{t-1} before its decay adds to the gradient."""
    s0, s1, s2, s3 = d_taken[0], d_taken[1], d_taken[2], d_taken[3]
    for c in range(d.shape[1]):
        d[x, c] -= at[W, c] * s0
        d[x + 1, c] -= at[W, c] * s1
        d[x + 2, c] -= at[W, c] * s2
        d[x + 3, c] -= at[W, c] * s3


@inlined
@no_type_check
def back_through_decay(d, x, before, at, dat):
    """And that of M_{t-1}; that of a follows."""
    for c in range(d.shape[1]):
        d0, d1, d2, d3 = d[x, c], d[x + 1, c], d[x + 2, c], d[x + 3, c]
        dat[c] += (d0 * before[x, c] + d1 * before[x + 1, c]) + (
            d2 * before[x + 2, c] + d3 * before[x + 3, c]
        )
        d[x, c], d[x + 1, c] = d0 * at[A, c], d1 * at[A, c]
        d[x + 2, c], d[x + 3, c] = d2 * at[A, c], d3 * at[A, c]


@no_type_check
def scan_back(
    q, k, v, a, w, u, early, rule, least, scale, total, y, segment, dy, dq, dk, dv, da, dw, du,
    start, end,
):  # fmt: skip
    """M is transposed here: most gradients are then sums over rows. States are computed again,
    `segment` steps at a time: they stay in cache."""
    heads, length, n, p = q.shape[1], q.shape[2], q.shape[3], v.shape[3]
    decays, reflects = a.shape[3], w.shape[3] > 0
    rows = (p + (0 if rule == ALONE else 1) + 3) // 4 * 4
    zero, one, number = q.dtype.type(0), q.dtype.type(1), q.dtype
    count, wide = (length + segment - 1) // segment, lanes(n)
    starts, states = (
        np.zeros((count, rows, wide), number),
        np.zeros((segment + 1, rows, wide), number),
    )
    taken, d = np.zeros((segment, rows), number), np.zeros((rows, wide), number)
    at, vt, dyt = np.zeros((6, wide), number), np.zeros(rows, number), np.zeros(rows, number)
    if rule != ALONE:
        vt[p] = 1
    dvt = np.zeros(rows, number)
    dqt, dkt, dat = np.zeros(wide, number), np.zeros(wide, number), np.zeros(wide, number)
    dwt, dut, d_taken = np.zeros(wide, number), np.zeros(wide, number), np.zeros(4, number)
    for b_h in range(start, end):
        b, h = b_h // heads, b_h % heads
        starts[0, :, :] = 0
        d[:] = 0
        for turn in range(2 * count - 1):
            # forwards through all segments for their starts, then back through each again
            part = turn if turn < count else 2 * count - 2 - turn
            first, last = part * segment, min((part + 1) * segment, length)
            states[0] = starts[part]
            for t in range(first, last):
                i = t - first
                load(q[b, h], k[b, h], a[b, h], w[b, h], u[b, h], early, scale, t, at)
                for x in range(p):
                    vt[x] = v[b, h, t, x]
                for x in range(rows):
                    for c in range(wide):
                        states[i + 1, x, c] = states[i, x, c]
                for x in range(0, rows, 4):
                    step_of_rows(states[i + 1], x, vt, at, reflects, taken[i])
            if turn < count - 1:
                starts[part + 1] = states[segment]
                continue
            for t in range(last - 1, first - 1, -1):
                i = t - first
                load(q[b, h], k[b, h], a[b, h], w[b, h], u[b, h], early, scale, t, at)
                dqt[:], dkt[:], dat[:], dwt[:], dut[:] = 0, 0, 0, 0, 0
                share = one
                if rule == DIVIDED:
                    share = zero if total[b, h, t] < least else one / total[b, h, t]
                    dyt[p] = 0
                elif rule == BESIDE:
                    dyt[p] = dy[b, h, t, p]
                for x in range(p):
                    vt[x], dyt[x] = v[b, h, t, x], share * dy[b, h, t, x]
                    if rule == DIVIDED:
                        dyt[p] -= dyt[x] * y[b, h, t, x]
                for x in range(0, rows, 4):
                    back_through_reading(d, x, states[i + 1], at, vt, dyt, dqt, dkt, dvt)
                    if reflects:
                        back_through_reflection(
                            d, x, states[i], at, taken[i], dwt, dut, early, d_taken
                        )
                    if decays > 0:
                        back_through_decay(d, x, states[i], at, dat)
                    if reflects and early:
                        back_through_early(d, x, at, d_taken)
                for x in range(p):
                    dv[b, h, t, x] = dvt[x]
                d_all = zero
                for c in range(n):
                    dq[b, h, t, c], dk[b, h, t, c] = scale * dqt[c], dkt[c]
                    if reflects:
                        dw[b, h, t, c] = dwt[c] if early else dwt[c] * at[A, c]
                        du[b, h, t, c] = dut[c]
                    if decays > 1:
                        da[b, h, t, c] = dat[c]
                    d_all += dat[c]
                if decays == 1:
                    da[b, h, t, 0] = d_all


def types(number: Any) -> Any:
    """Of the arguments: arrays of any strides."""
    arrays = (number[:, :, :, :],) * 7
    return (
        *arrays[:6], nb.boolean, nb.int64, number, number, number[:, :, ::1], arrays[0], nb.int64,
        *arrays, nb.int64, nb.int64,
    )  # fmt: skip
