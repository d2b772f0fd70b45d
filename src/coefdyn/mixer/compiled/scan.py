"""The linear form as loops over time, compiled: a state M (n x p) per head.

    M_t = (I - u_t w_t^T) diag(a_t) M_{t-1} + k_t v_t^T,    y_t = M_t^T q_t

Where `early`, w_t reads M_{t-1} before it decays: M_t = (diag(a_t) - u_t w_t^T) M_{t-1} + ...

Arrays are (b, h, t, channels). `a` has no channel (A_t does not decay), one per head, or n; `u` and
`w` have none where A_t does not reflect. The row's sum of alpha is what y would be for v = 1: one
more column of M. `rule` says what becomes of it: nothing (ALONE), one more channel of y (BESIDE),
or y is divided by it (DIVIDED), a sum below `least` giving y = 0. Queries are
multiplied by `scale`.

Rows of M have a multiple of LANES columns and are taken four at a time; what is beyond n and p is
zero. A call computes the heads from `start` to `end`, counted through the batch.
"""

from typing import Any, no_type_check

import numba as nb
import numpy as np

from coefdyn.mixer.compiled.rows import inlined, lanes

ALONE, BESIDE, DIVIDED = 0, 1, 2
# the rows of a step's vectors
Q, K, A, WA, U, W = range(6)


@inlined
@no_type_check
def load(q, k, a, w, u, early, scale, t, at):
    """The vectors of step t; WA is what reads M_{t-1}."""
    decays, one = a.shape[1], at.dtype.type(1)
    for c in range(q.shape[1]):
        at[Q, c], at[K, c] = scale * q[t, c], k[t, c]
        ac = one if decays == 0 else a[t, c if decays > 1 else 0]
        at[A, c] = ac
        if w.shape[1] > 0:
            at[W, c], at[U, c] = w[t, c], u[t, c]
            at[WA, c] = w[t, c] if early else w[t, c] * ac


@inlined
@no_type_check
def taken_of(state, at, r):
    """r = w^T diag(a) M, or w^T M where early."""
    for x in range(r.shape[0]):
        r[x] = 0
    for c in range(0, state.shape[0], 4):
        w0, w1, w2, w3 = at[WA, c], at[WA, c + 1], at[WA, c + 2], at[WA, c + 3]
        for x in range(r.shape[0]):
            r[x] += (w0 * state[c, x] + w1 * state[c + 1, x]) + (
                w2 * state[c + 2, x] + w3 * state[c + 3, x]
            )


@inlined
@no_type_check
def step(state, at, reflects, r, vt, yt):
    """M_t from M_{t-1}, in place; what is read of it is added to `yt`."""
    wide = vt.shape[0]
    if reflects:
        taken_of(state, at, r)
    for c in range(0, state.shape[0], 4):
        a0, a1, a2, a3 = at[A, c], at[A, c + 1], at[A, c + 2], at[A, c + 3]
        k0, k1, k2, k3 = at[K, c], at[K, c + 1], at[K, c + 2], at[K, c + 3]
        q0, q1, q2, q3 = at[Q, c], at[Q, c + 1], at[Q, c + 2], at[Q, c + 3]
        u0, u1, u2, u3 = at[U, c], at[U, c + 1], at[U, c + 2], at[U, c + 3]
        if reflects:
            for x in range(wide):
                s0 = a0 * state[c, x] - u0 * r[x] + k0 * vt[x]
                s1 = a1 * state[c + 1, x] - u1 * r[x] + k1 * vt[x]
                s2 = a2 * state[c + 2, x] - u2 * r[x] + k2 * vt[x]
                s3 = a3 * state[c + 3, x] - u3 * r[x] + k3 * vt[x]
                state[c, x], state[c + 1, x], state[c + 2, x], state[c + 3, x] = s0, s1, s2, s3
                yt[x] += (q0 * s0 + q1 * s1) + (q2 * s2 + q3 * s3)
        else:
            for x in range(wide):
                s0 = a0 * state[c, x] + k0 * vt[x]
                s1 = a1 * state[c + 1, x] + k1 * vt[x]
                s2 = a2 * state[c + 2, x] + k2 * vt[x]
                s3 = a3 * state[c + 3, x] + k3 * vt[x]
                state[c, x], state[c + 1, x], state[c + 2, x], state[c + 3, x] = s0, s1, s2, s3
                yt[x] += (q0 * s0 + q1 * s1) + (q2 * s2 + q3 * s3)


@no_type_check
def scan(q, k, v, a, w, u, early, rule, least, scale, y, total, start, end):
    heads, length, n, p = q.shape[1], q.shape[2], q.shape[3], v.shape[3]
    reflects, summed = w.shape[3] > 0, rule != ALONE
    tall, wide = (n + 3) // 4 * 4, lanes(p + (1 if summed else 0))
    state, at = np.zeros((tall, wide), q.dtype), np.zeros((6, tall), q.dtype)
    r, vt, yt = np.zeros(wide, q.dtype), np.zeros(wide, q.dtype), np.zeros(wide, q.dtype)
    for b_h in range(start, end):
        b, h = b_h // heads, b_h % heads
        state[:] = 0
        if summed:
            vt[p] = 1
        for t in range(length):
            load(q[b, h], k[b, h], a[b, h], w[b, h], u[b, h], early, scale, t, at)
            for x in range(p):
                vt[x] = v[b, h, t, x]
            for x in range(wide):
                yt[x] = 0
            step(state, at, reflects, r, vt, yt)
            if rule == DIVIDED:
                total[b, h, t] = yt[p]
                for x in range(p):
                    y[b, h, t, x] = yt[x] / yt[p] if yt[p] >= least or yt[p] != yt[p] else 0
            else:
                for x in range(y.shape[3]):
                    y[b, h, t, x] = yt[x]


def types(number: Any) -> Any:
    """Of the arguments: arrays of any strides."""
    arrays = (number[:, :, :, :],) * 7
    return (
        *arrays[:6], nb.boolean, nb.int64, number, number, arrays[0], number[:, :, ::1], nb.int64,
        nb.int64,
    )  # fmt: skip
