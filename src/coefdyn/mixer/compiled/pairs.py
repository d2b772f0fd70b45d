"""The paper's double sum as loops over pairs, compiled: any A_t with any readout known here.

    h_ij = (I - u_i w_i^T) diag(a_i) h_{i-1,j},  h_jj = k_j        (k are scaled keys b_j k_j)
    alpha_ij = phi(q_i . h_ij + g_i - g_j),   or   q_i . psi(h_ij) where `psi` is a readout
    y_i = sum_{j <= i} alpha_ij v_j

The keys of a head are an n x L array that every step transforms, as definition.py does; all loops
run over j. Arrays are (b, h, t, channels). `a` has no channel (A_t does not decay), one per head,
or n; `u` and `w` have none where A_t does not reflect, `g` none where nothing is added to scores.
With `row_sum`, y has one more channel, for sum_j alpha_ij. With `shift`, a row's largest score,
`unit`, is taken off before phi.

All compiled code of this kernel lies in this file: numba's cache does not see edits elsewhere.
"""

import math
from typing import Any, no_type_check

import numba as nb
import numpy as np

NONE, IDENTITY, EXP, RELU, SOFTPLUS, SIGMOID, ELU_PLUS_ONE = -1, 0, 1, 2, 3, 4, 5
SILU, GELU, TANH, RELU_SQUARED, POLYNOMIAL = 6, 7, 8, 9, 10
CODES = {  # what a readout names as its `compiled` loop
    "identity": IDENTITY, "exp": EXP, "relu": RELU, "softplus": SOFTPLUS, "sigmoid": SIGMOID,
    "elu_plus_one": ELU_PLUS_ONE, "silu": SILU, "gelu": GELU, "tanh": TANH,
    "relu_squared": RELU_SQUARED, "polynomial": POLYNOMIAL,
}  # fmt: skip

# Without those that would lose a NaN or an infinity.
FAST = {"reassoc", "contract", "arcp", "nsz"}
OPTIONS: dict[str, Any] = {"parallel": True, "fastmath": FAST, "error_model": "numpy"}
F = np.float32


@nb.njit(fastmath=FAST, error_model="numpy")
@no_type_check
def exp_row(s, out, bits, m):
    """e^s. float32: a polynomial on |r| <= log(2)/2, times powers of two that are written as bits,
    in two steps since one would not reach the smallest and largest numbers. Loops of libm's exp
    would not become vector code."""
    if s.itemsize == 8:
        for j in range(m):
            out[j] = math.exp(s[j])
        return
    half, rest = bits[0], bits[1]
    for j in range(m):
        x = s[j]
        x = F(-104.0) if x < F(-104.0) else x
        x = F(89.0) if x > F(89.0) else x
        t = np.floor(x * F(1.44269504088896341) + F(0.5))
        r = x - t * F(0.693359375) + t * F(2.12194440e-4)
        y = F(1.9875691500e-4) * r + F(1.3981999507e-3)
        y = y * r + F(8.3334519073e-3)
        y = y * r + F(4.1665795894e-2)
        y = y * r + F(1.6666665459e-1)
        y = y * r + F(5.0000001201e-1)
        out[j] = y * (r * r) + r + F(1.0)
        power = np.int32(t)
        first = power >> np.int32(1)
        half[j] = (first + np.int32(127)) << np.int32(23)
        rest[j] = (power - first + np.int32(127)) << np.int32(23)
    one, other = half.view(np.float32), rest.view(np.float32)
    for j in range(m):
        out[j] = out[j] * one[j] * other[j]


@nb.njit(fastmath=FAST, error_model="numpy")
@no_type_check
def sigmoid_row(s, out, spare, bits, m):
    """1/(1 + e^-s), and e^-|s| in `spare`."""
    zero = s.dtype.type(0)
    one = s.dtype.type(1)
    for j in range(m):
        out[j] = -abs(s[j])
    exp_row(out, spare, bits, m)
    for j in range(m):
        e = spare[j]
        out[j] = (e if s[j] < zero else one) / (one + e)


@nb.njit(fastmath=FAST, error_model="numpy")
@no_type_check
def softplus_row(s, out, spare, bits, m):
    """log(1 + e^s) = max(s, 0) + log(1 + z), z = e^-|s|, log(1 + z) = 2 artanh(z/(2 + z))."""
    zero = s.dtype.type(0)
    for j in range(m):
        out[j] = -abs(s[j])
    exp_row(out, spare, bits, m)
    if s.itemsize == 8:
        for j in range(m):
            out[j] = (s[j] if s[j] > zero else zero) + math.log1p(spare[j])
        return
    for j in range(m):
        z = spare[j]
        t = z / (F(2.0) + z)
        x = t * t
        y = F(1 / 15) * x + F(1 / 13)
        y = y * x + F(1 / 11)
        y = y * x + F(1 / 9)
        y = y * x + F(1 / 7)
        y = y * x + F(1 / 5)
        y = y * x + F(1 / 3)
        out[j] = (s[j] if s[j] > zero else zero) + F(2.0) * t * (y * x + F(1.0))


@nb.njit(fastmath=FAST, error_model="numpy")
@no_type_check
def read_row(code, polynomial, s, out, spare, bits, m):
    """out = phi(s). Comparisons are such that a NaN stays one."""
    zero = s.dtype.type(0)
    if code == IDENTITY:
        for j in range(m):
            out[j] = s[j]
    elif code == EXP:
        exp_row(s, out, bits, m)
    elif code == RELU:
        for j in range(m):
            out[j] = zero if s[j] <= zero else s[j]
    elif code == SOFTPLUS:
        softplus_row(s, out, spare, bits, m)
    elif code == SIGMOID:
        sigmoid_row(s, out, spare, bits, m)
    elif code == ELU_PLUS_ONE:
        for j in range(m):
            spare[j] = zero if s[j] > zero else s[j]
        exp_row(spare, out, bits, m)
        for j in range(m):
            out[j] += s[j] if s[j] > zero else zero
    elif code == SILU:
        sigmoid_row(s, out, spare, bits, m)
        for j in range(m):
            out[j] *= s[j]
    elif code == GELU:
        for j in range(m):
            out[j] = s[j] * (0.5 * math.erfc(-s[j] * 0.7071067811865476))
    elif code == TANH:
        for j in range(m):
            out[j] = math.tanh(s[j])
    elif code == RELU_SQUARED:
        for j in range(m):
            x = zero if s[j] <= zero else s[j]
            out[j] = x * x
    else:
        degree = polynomial.shape[0] - 1
        for j in range(m):
            out[j] = polynomial[degree]
        for c in range(degree - 1, -1, -1):
            for j in range(m):
                out[j] = out[j] * s[j] + polynomial[c]


@nb.njit(fastmath=FAST, error_model="numpy")
@no_type_check
def slope_row(code, polynomial, s, alpha, out, spare, bits, m):
    """out = phi'(s), alpha being phi(s)."""
    zero, one = s.dtype.type(0), s.dtype.type(1)
    if code == IDENTITY:
        for j in range(m):
            out[j] = one
    elif code == EXP:
        for j in range(m):
            out[j] = alpha[j]
    elif code == RELU:
        for j in range(m):
            out[j] = zero if alpha[j] <= zero else one
    elif code == SOFTPLUS:
        sigmoid_row(s, out, spare, bits, m)
    elif code == SIGMOID:
        for j in range(m):
            out[j] = alpha[j] * (one - alpha[j])
    elif code == ELU_PLUS_ONE:
        for j in range(m):
            out[j] = one if alpha[j] > one else alpha[j]
    elif code == SILU:
        sigmoid_row(s, out, spare, bits, m)
        for j in range(m):
            out[j] = out[j] * (one + s[j] * (one - out[j]))
    elif code == GELU:
        for j in range(m):
            x = s[j]
            density = 0.3989422804014327 * math.exp(-0.5 * x * x)
            out[j] = 0.5 * math.erfc(-x * 0.7071067811865476) + x * density
    elif code == TANH:
        for j in range(m):
            out[j] = one - alpha[j] * alpha[j]
    elif code == RELU_SQUARED:
        for j in range(m):
            out[j] = zero if s[j] <= zero else s[j] + s[j]
    else:
        degree = polynomial.shape[0] - 1
        for j in range(m):
            out[j] = degree * polynomial[degree]
        for c in range(degree - 1, 0, -1):
            for j in range(m):
                out[j] = out[j] * s[j] + c * polynomial[c]


@nb.njit(fastmath=FAST, error_model="numpy")
@no_type_check
def weighted_rows(rows, weights, out, m):
    """out_j = sum_c weights_c rows_cj. Four rows at a time: out is read and written less often."""
    count = rows.shape[0]
    for j in range(m):
        out[j] = 0
    c = 0
    while c + 4 <= count:
        w0, w1, w2, w3 = weights[c], weights[c + 1], weights[c + 2], weights[c + 3]
        for j in range(m):
            out[j] += (w0 * rows[c, j] + w1 * rows[c + 1, j]) + (
                w2 * rows[c + 2, j] + w3 * rows[c + 3, j]
            )
        c += 4
    while c < count:
        w0 = weights[c]
        for j in range(m):
            out[j] += w0 * rows[c, j]
        c += 1


@nb.njit(fastmath=FAST, error_model="numpy")
@no_type_check
def transform(before, after, r, a, w, u, i):
    """h_ij from h_{i-1,j} for all j < i, channel by channel; r_j = w . diag(a) h_{i-1,j}.

    `before` and `after` may be one array."""
    n, decays, reflects = before.shape[0], a.shape[0], w.shape[0] > 0
    one = before.dtype.type(1)
    if not reflects:
        for c in range(n):
            ac = a[c if decays > 1 else 0]
            for j in range(i):
                after[c, j] = ac * before[c, j]
        return
    for j in range(i):
        r[j] = 0
    for c in range(n):
        weight = w[c] * (one if decays == 0 else a[c if decays > 1 else 0])
        for j in range(i):
            r[j] += weight * before[c, j]
    for c in range(n):
        ac, uc = one if decays == 0 else a[c if decays > 1 else 0], u[c]
        for j in range(i):
            after[c, j] = ac * before[c, j] - uc * r[j]


@nb.njit(fastmath=FAST, error_model="numpy")
@no_type_check
def scores(keys, qi, psi, polynomial, s, alpha, spare, bits, m):
    """s_j = q_i . h_ij, or q_i . psi(h_ij)."""
    if psi == NONE:
        weighted_rows(keys, qi, s, m)
        return
    for j in range(m):
        s[j] = 0
    for c in range(keys.shape[0]):
        read_row(psi, polynomial, keys[c], alpha, spare, bits, m)
        qc = qi[c]
        for j in range(m):
            s[j] += qc * alpha[j]


@no_type_check
def forward(q, k, v, a, w, u, g, code, psi, polynomial, row_sum, shift, y, unit):
    heads, length, n, p = q.shape[1], q.shape[2], q.shape[3], v.shape[3]
    decays, added = a.shape[3], g.shape[3] > 0
    moves = w.shape[3] > 0 or decays > 1 or (decays > 0 and psi != NONE)
    fades = decays == 1 and not moves  # then a factor per pair says it all
    for b_h in nb.prange(q.shape[0] * heads):
        b, h = b_h // heads, b_h % heads
        keys, values = np.empty((n, length), q.dtype), np.empty((p, length), q.dtype)
        s, alpha = np.empty(length, q.dtype), np.empty(length, q.dtype)
        spare, factor = np.empty(length, q.dtype), np.ones(length, q.dtype)
        bits = np.empty((2, length), np.int32)
        qi, ai = np.empty(n, q.dtype), np.empty(decays, q.dtype)
        wi, ui = np.empty(w.shape[3], q.dtype), np.empty(w.shape[3], q.dtype)
        for j in range(length):
            for c in range(n):
                keys[c, j] = k[b, h, j, c]
            for x in range(p):
                values[x, j] = v[b, h, j, x]
        for i in range(length):
            m = i + 1
            for c in range(n):
                qi[c] = q[b, h, i, c]
            for c in range(decays):
                ai[c] = a[b, h, i, c]
            for c in range(w.shape[3]):
                wi[c], ui[c] = w[b, h, i, c], u[b, h, i, c]
            if moves:
                transform(keys, keys, spare, ai, wi, ui, i)
            elif fades:
                for j in range(i):
                    factor[j] *= ai[0]
            scores(keys, qi, psi, polynomial, s, alpha, spare, bits, m)
            if fades:
                for j in range(m):
                    s[j] *= factor[j]
            if added:
                for j in range(m):
                    s[j] += g[b, h, i, 0] - g[b, h, j, 0]
            if shift:
                largest = s[0]
                for j in range(m):
                    largest = s[j] if s[j] > largest else largest
                unit[b, h, i] = largest
                for j in range(m):
                    s[j] -= largest
            read_row(code, polynomial, s, alpha, spare, bits, m)
            for x in range(p):
                total = q.dtype.type(0)
                for j in range(m):
                    total += alpha[j] * values[x, j]
                y[b, h, i, x] = total
            if row_sum:
                total = q.dtype.type(0)
                for j in range(m):
                    total += alpha[j]
                y[b, h, i, p] = total


@no_type_check
def backward(
    q, k, v, a, w, u, g, code, psi, polynomial, row_sum, shift, unit, segment,
    dy, dq, dk, dv, da, dw, du, dg,
):  # fmt: skip
    """What A_t has made of the keys is computed again, `segment` steps at a time."""
    heads, length, n, p = q.shape[1], q.shape[2], q.shape[3], v.shape[3]
    decays, reflects, added = a.shape[3], w.shape[3] > 0, g.shape[3] > 0
    moves = reflects or decays > 1 or (decays > 0 and psi != NONE)
    fades = decays == 1 and not moves
    one = q.dtype.type(1)
    count = (length + segment - 1) // segment if moves or fades else 1
    kept = segment if moves or fades else 0  # steps whose keys, or factors, are held at once
    wide = n if moves else 1 if fades else 0
    for b_h in nb.prange(q.shape[0] * heads):
        b, h = b_h // heads, b_h % heads
        keys, values = np.empty((n, length), q.dtype), np.empty((p, length), q.dtype)
        d_keys, d_values = np.zeros((n, length), q.dtype), np.zeros((p, length), q.dtype)
        # the keys (moves) or factors (fades) before and after each step of a segment
        states = np.ones((kept + 1, wide, length), q.dtype)
        starts = np.ones((count if count > 1 else 0, wide, length), q.dtype)
        s, alpha, d = (
            np.empty(length, q.dtype),
            np.empty(length, q.dtype),
            np.empty(length, q.dtype),
        )
        slope, spare, raw = (
            np.empty(length, q.dtype),
            np.empty(length, q.dtype),
            np.empty(length, q.dtype),
        )
        d_factor, d_added = np.zeros(length, q.dtype), np.zeros(length, q.dtype)
        taken, d_taken = np.empty(length, q.dtype), np.empty(length, q.dtype)
        bits = np.empty((2, length), np.int32)
        qi, ai = np.empty(n, q.dtype), np.empty(decays, q.dtype)
        wi, ui = np.empty(w.shape[3], q.dtype), np.empty(w.shape[3], q.dtype)
        dyi = np.empty(p, q.dtype)
        for j in range(length):
            for c in range(n):
                keys[c, j] = k[b, h, j, c]
            for x in range(p):
                values[x, j] = v[b, h, j, x]
        for turn in range(2 * count - 1):
            # forwards through all segments for their starts, then back through each again
            part = turn if turn < count else 2 * count - 2 - turn
            first = part * segment if count > 1 else 0
            last = min(first + segment, length) if count > 1 else length
            if count > 1 and part > 0:
                for c in range(wide):
                    for j in range(first):
                        states[0, c, j] = starts[part, c, j]
            if moves or fades:
                for i in range(first, last):
                    before, after = states[i - first], states[i - first + 1]
                    for c in range(decays):
                        ai[c] = a[b, h, i, c]
                    for c in range(w.shape[3]):
                        wi[c], ui[c] = w[b, h, i, c], u[b, h, i, c]
                    if moves:
                        transform(before, after, spare, ai, wi, ui, i)
                        for c in range(n):
                            after[c, i] = keys[c, i]
                    else:
                        for j in range(i):
                            after[0, j] = before[0, j] * ai[0]
                        after[0, i] = one
            if turn < count - 1:
                for c in range(wide):
                    for j in range(last):
                        starts[part + 1, c, j] = states[last - first, c, j]
                continue
            for i in range(last - 1, first - 1, -1):
                m = i + 1
                seen = states[i - first + 1] if moves else keys
                for c in range(n):
                    qi[c] = q[b, h, i, c]
                for x in range(p):
                    dyi[x] = dy[b, h, i, x]
                scores(seen, qi, psi, polynomial, s, alpha, spare, bits, m)
                if fades:
                    for j in range(m):
                        raw[j] = s[j]
                        s[j] *= states[i - first + 1, 0, j]
                if added:
                    for j in range(m):
                        s[j] += g[b, h, i, 0] - g[b, h, j, 0]
                if shift:
                    largest = unit[b, h, i]
                    for j in range(m):
                        s[j] -= largest
                read_row(code, polynomial, s, alpha, spare, bits, m)
                slope_row(code, polynomial, s, alpha, slope, spare, bits, m)
                weighted_rows(values, dyi, d, m)
                total = dy[b, h, i, p] if row_sum else one * 0
                for j in range(m):
                    d[j] = (d[j] + total) * slope[j]
                for x in range(p):
                    for j in range(m):
                        d_values[x, j] += dyi[x] * alpha[j]
                if added:
                    total = one * 0
                    for j in range(m):
                        total += d[j]
                        d_added[j] -= d[j]
                    d_added[i] += total
                if fades:
                    for j in range(m):
                        d_factor[j] += d[j] * raw[j]
                        d[j] *= states[i - first + 1, 0, j]
                for c in range(n):
                    total, qc = one * 0, qi[c]
                    if psi == NONE:
                        for j in range(m):
                            total += d[j] * seen[c, j]
                            d_keys[c, j] += d[j] * qc
                    else:
                        read_row(psi, polynomial, seen[c], alpha, spare, bits, m)
                        slope_row(psi, polynomial, seen[c], alpha, slope, spare, bits, m)
                        for j in range(m):
                            total += d[j] * alpha[j]
                            d_keys[c, j] += d[j] * qc * slope[j]
                    dq[b, h, i, c] = total
                # back through A_i
                if fades:
                    total, ac = one * 0, a[b, h, i, 0]
                    for j in range(i):
                        total += d_factor[j] * states[i - first, 0, j]
                        d_factor[j] *= ac
                    da[b, h, i, 0] = total
                if not moves:
                    continue
                before = states[i - first]
                for c in range(decays):
                    ai[c] = a[b, h, i, c]
                if reflects:
                    for c in range(n):
                        wi[c] = w[b, h, i, c] * (one if decays == 0 else ai[c if decays > 1 else 0])
                        ui[c] = u[b, h, i, c]
                    weighted_rows(before, wi, taken, i)
                    weighted_rows(d_keys, ui, d_taken, i)
                    for c in range(n):
                        total = one * 0
                        for j in range(i):
                            total += d_keys[c, j] * taken[j]
                        du[b, h, i, c] = -total
                d_all = one * 0
                for c in range(n):
                    ac = one if decays == 0 else ai[c if decays > 1 else 0]
                    total = one * 0
                    if reflects:
                        wc, along = w[b, h, i, c], one * 0
                        for j in range(i):
                            d_h = d_keys[c, j] - wc * d_taken[j]
                            along += d_taken[j] * before[c, j]
                            total += d_h * before[c, j]
                            d_keys[c, j] = d_h * ac
                        dw[b, h, i, c] = -along * ac
                    else:
                        for j in range(i):
                            total += d_keys[c, j] * before[c, j]
                            d_keys[c, j] *= ac
                    if decays > 1:
                        da[b, h, i, c] = total
                    d_all += total
                if decays == 1:
                    da[b, h, i, 0] = d_all
        for j in range(length):
            for c in range(n):
                dk[b, h, j, c] = d_keys[c, j]
            for x in range(p):
                dv[b, h, j, x] = d_values[x, j]
            if added:
                dg[b, h, j, 0] = d_added[j]


def types(way: str, number: Any) -> Any:
    """Of the arguments: arrays of any strides."""
    arrays = (number[:, :, :, :],) * 8
    settings = (nb.int64, nb.int64, number[::1], nb.boolean, nb.boolean)
    if way == "forward":
        return (*arrays[:7], *settings, arrays[0], number[:, :, ::1])
    return (*arrays[:7], *settings, number[:, :, ::1], nb.int64, *arrays)
