"""The linear form as loops over time, compiled: a state M (n x p) per head.

    M_t = (I - u_t w_t^T) diag(a_t) M_{t-1} + k_t v_t^T,    y_t = M_t^T q_t
    z_t = (I - u_t w_t^T) diag(a_t) z_{t-1} + k_t,          the row's sum of alpha is z_t . q_t

Arrays are (b, h, t, channels). `a` has no channel (A_t does not decay), one per head, or n; `u` and
`w` have none where A_t does not reflect. With `row_sum`, y has one more channel, for that sum.

All compiled code of this kernel lies in this file: numba's cache does not see edits elsewhere.
"""

from typing import Any, no_type_check

import numba as nb
import numpy as np

# Without those that would lose a NaN or an infinity.
FAST = {"reassoc", "contract", "arcp", "nsz"}
OPTIONS: dict[str, Any] = {"parallel": True, "fastmath": FAST, "error_model": "numpy"}


@no_type_check
def forward(q, k, v, a, w, u, row_sum, y):
    heads, length, n = q.shape[1], q.shape[2], q.shape[3]
    p, decays, reflects = v.shape[3], a.shape[3], w.shape[3] > 0
    one = q.dtype.type(1)
    for g in nb.prange(q.shape[0] * heads):
        b, h = g // heads, g % heads
        M, z = np.zeros((n, p), q.dtype), np.zeros(n, q.dtype)
        r, vt, yt = np.empty(p, q.dtype), np.empty(p, q.dtype), np.empty(p, q.dtype)
        for t in range(length):
            taken = one * 0  # w . diag(a) z
            for x in range(p):
                r[x], vt[x], yt[x] = 0, v[b, h, t, x], 0
            if reflects:
                for c in range(n):
                    wc = w[b, h, t, c]
                    ac = one if decays == 0 else a[b, h, t, c if decays > 1 else 0]
                    z[c] *= ac
                    taken += wc * z[c]
                    for x in range(p):
                        s = M[c, x] * ac
                        M[c, x] = s
                        r[x] += wc * s
            total = one * 0
            for c in range(n):
                kc, qc = k[b, h, t, c], q[b, h, t, c]
                if reflects:
                    uc = u[b, h, t, c]
                    z[c] += kc - uc * taken
                    for x in range(p):
                        s = M[c, x] - uc * r[x] + kc * vt[x]
                        M[c, x] = s
                        yt[x] += qc * s
                else:
                    ac = one if decays == 0 else a[b, h, t, c if decays > 1 else 0]
                    z[c] = z[c] * ac + kc
                    for x in range(p):
                        s = M[c, x] * ac + kc * vt[x]
                        M[c, x] = s
                        yt[x] += qc * s
                total += qc * z[c]
            for x in range(p):
                y[b, h, t, x] = yt[x]
            if row_sum:
                y[b, h, t, p] = total


@no_type_check
def backward(q, k, v, a, w, u, row_sum, segment, dy, dq, dk, dv, da, dw, du):
    """States are computed again, `segment` steps at a time: they stay in cache."""
    heads, length, n = q.shape[1], q.shape[2], q.shape[3]
    p, decays, reflects = v.shape[3], a.shape[3], w.shape[3] > 0
    one = q.dtype.type(1)
    count = (length + segment - 1) // segment
    for g in nb.prange(q.shape[0] * heads):
        b, h = g // heads, g % heads
        starts = np.zeros((count, n, p + 1), q.dtype)  # M and z at each segment's start
        M = np.zeros((segment + 1, n, p), q.dtype)
        z = np.zeros((segment + 1, n), q.dtype)
        R, taken = np.zeros((segment, p), q.dtype), np.zeros(segment, q.dtype)
        D, Dz = np.zeros((n, p), q.dtype), np.zeros(n, q.dtype)
        dr, vt = np.empty(p, q.dtype), np.empty(p, q.dtype)
        dyt, dvt = np.empty(p, q.dtype), np.empty(p, q.dtype)
        for turn in range(2 * count - 1):
            # forwards through all segments for their starts, then back through each again
            part = turn if turn < count else 2 * count - 2 - turn
            first, last = part * segment, min((part + 1) * segment, length)
            for c in range(n):
                z[0, c] = starts[part, c, p]
                for x in range(p):
                    M[0, c, x] = starts[part, c, x]
            for t in range(first, last):
                i = t - first
                for x in range(p):
                    vt[x], R[i, x] = v[b, h, t, x], 0
                taken[i] = 0
                if reflects:
                    for c in range(n):
                        wc = w[b, h, t, c]
                        ac = one if decays == 0 else a[b, h, t, c if decays > 1 else 0]
                        taken[i] += wc * ac * z[i, c]
                        for x in range(p):
                            R[i, x] += wc * (M[i, c, x] * ac)
                for c in range(n):
                    kc = k[b, h, t, c]
                    ac = one if decays == 0 else a[b, h, t, c if decays > 1 else 0]
                    if reflects:
                        uc = u[b, h, t, c]
                        z[i + 1, c] = z[i, c] * ac - uc * taken[i] + kc
                        for x in range(p):
                            M[i + 1, c, x] = M[i, c, x] * ac - uc * R[i, x] + kc * vt[x]
                    else:
                        z[i + 1, c] = z[i, c] * ac + kc
                        for x in range(p):
                            M[i + 1, c, x] = M[i, c, x] * ac + kc * vt[x]
            if turn < count - 1:
                for c in range(n):
                    starts[part + 1, c, p] = z[segment, c]
                    for x in range(p):
                        starts[part + 1, c, x] = M[segment, c, x]
                continue
            for t in range(last - 1, first - 1, -1):
                i = t - first
                d_total = dy[b, h, t, p] if row_sum else one * 0
                d_taken = one * 0
                for x in range(p):
                    vt[x], dyt[x], dvt[x], dr[x] = v[b, h, t, x], dy[b, h, t, x], 0, 0
                for c in range(n):
                    qc, kc = q[b, h, t, c], k[b, h, t, c]
                    Dz[c] += qc * d_total
                    dqc, dkc = z[i + 1, c] * d_total, Dz[c]
                    if reflects:
                        uc = u[b, h, t, c]
                        duc = Dz[c] * taken[i]
                        d_taken -= uc * Dz[c]
                        for x in range(p):
                            d = D[c, x] + qc * dyt[x]
                            D[c, x] = d
                            dqc += M[i + 1, c, x] * dyt[x]
                            dkc += d * vt[x]
                            dvt[x] += kc * d
                            duc += d * R[i, x]
                            dr[x] -= uc * d
                        du[b, h, t, c] = -duc
                    else:
                        for x in range(p):
                            d = D[c, x] + qc * dyt[x]
                            D[c, x] = d
                            dqc += M[i + 1, c, x] * dyt[x]
                            dkc += d * vt[x]
                            dvt[x] += kc * d
                    dq[b, h, t, c], dk[b, h, t, c] = dqc, dkc
                d_all = one * 0
                for c in range(n):
                    ac = one if decays == 0 else a[b, h, t, c if decays > 1 else 0]
                    dac = one * 0
                    if reflects:
                        wc = w[b, h, t, c]
                        dwc = z[i, c] * d_taken
                        Dz[c] += wc * d_taken
                        dac += Dz[c] * z[i, c]
                        for x in range(p):
                            d = D[c, x] + wc * dr[x]
                            dwc += M[i, c, x] * dr[x]
                            dac += d * M[i, c, x]
                            D[c, x] = d * ac
                        dw[b, h, t, c] = dwc * ac
                    elif decays > 0:
                        dac += Dz[c] * z[i, c]
                        for x in range(p):
                            d = D[c, x]
                            dac += d * M[i, c, x]
                            D[c, x] = d * ac
                    Dz[c] *= ac
                    if decays > 1:
                        da[b, h, t, c] = dac
                    d_all += dac
                if decays == 1:
                    da[b, h, t, 0] = d_all
                for x in range(p):
                    dv[b, h, t, x] = dvt[x]


def types(way: str, number: Any) -> Any:
    """Of the arguments: arrays of any strides."""
    arrays = (number[:, :, :, :],) * 7
    if way == "forward":
        return (*arrays[:6], nb.boolean, arrays[0])
    return (*arrays[:6], nb.boolean, nb.int64, *arrays)
