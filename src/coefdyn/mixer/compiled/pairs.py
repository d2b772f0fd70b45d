"""The paper's double sum as loops over pairs, compiled: any A_t with any readout known here.

    h_ij = (I - u_i w_i^T) diag(a_i) h_{i-1,j},  h_jj = k_j        (k are scaled keys b_j k_j)
    alpha_ij = phi(q_i . h_ij + g_i - g_j),   or   q_i . psi(h_ij) where `psi` is a readout
    y_i = sum_{j <= i} alpha_ij v_j

The keys of a head are an n x L array that every step transforms, as definition.py does. All loops
run over j, in rows of a multiple of LANES; of what a row holds beyond j = i nothing counts.

Arrays are (b, h, t, channels). `a` has no channel (A_t does not decay), one per head, or n; `u` and
`w` have none where A_t does not reflect, `g` none where nothing is added to scores. With `shift`, a
row's largest score, `unit`, is taken off before phi. `rule` says what becomes of a row's sum of
alpha: nothing (ALONE), one more channel of y (BESIDE), or y is divided by it (DIVIDED), a sum below
`least` giving y = 0. `kept` has the coefficients themselves, where it has columns. A call computes
the heads from `start` to `end`, counted through the batch.
"""

from typing import Any, no_type_check

import numba as nb
import numpy as np

from coefdyn.mixer.compiled.readouts import NONE, read
from coefdyn.mixer.compiled.rows import (
    FAST,  # noqa: F401  kernels.py reads it
    LANES,
    ROWS,
    combine,
    inlined,
    inner,
    lanes,
    largest,
    spread,
)

ALONE, BESIDE, DIVIDED = 0, 1, 2


@inlined
@no_type_check
def transform(keys, taken, a, w, u, m):
    """h_ij from h_{i-1,j}, channel by channel; taken_j = w . diag(a) h_{i-1,j}: `w` has been
    multiplied by a."""
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
def step_of(a, w, u, i, ai, wi, ui):
    """a_i, u_i, and w_i times a_i."""
    decays, one = a.shape[1], a.dtype.type(1)
    for c in range(decays):
        ai[c] = a[i, c]
    for c in range(w.shape[1]):
        wi[c] = w[i, c] * (one if decays == 0 else a[i, c if decays > 1 else 0])
        ui[c] = u[i, c]


@inlined
@no_type_check
def load(source, rows):
    """Steps as columns."""
    for j in range(source.shape[0]):
        for c in range(source.shape[1]):
            rows[c, j] = source[j, c]


@inlined
@no_type_check
def add_difference(s, g, i, m):
    gi = g[i, 0]
    for j in range(min(m, g.shape[0])):
        s[j] += gi - g[j, 0]


@no_type_check
def forward(
    q, k, v, a, w, u, g, code, psi, polynomial, rule, least, shift, y, unit, total, kept, start, end
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
                    qi[c] = q[b, h, i, c]
                if moves:
                    step_of(a[b, h], w[b, h], u[b, h], i, ai, wi, ui)
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


@inlined
@no_type_check
def states_of(first, last, k, a, w, u, moves, states, taken, ai, wi, ui):
    """The keys (or, where A_t only fades, the factors) before and after the steps of a segment,
    and what its reflections take of them; the first of `states` is given. What lies beyond step i
    is zero."""
    for i in range(first, last):
        before, after = states[i - first], states[i - first + 1]
        m = (i // LANES + 1) * LANES
        if i % LANES == 0:
            before[:, i:m] = 0
        step_of(a, w, u, i, ai, wi, ui)
        for c in range(states.shape[1]):
            for j in range(m):
                after[c, j] = before[c, j]
        if ai.shape[0] + wi.shape[0] > 0:
            transform(after, taken[i - first], ai, wi, ui, m)
        for c in range(states.shape[1]):
            after[c, i] = k[i, c] if moves else states.dtype.type(1)


@inlined
@no_type_check
def back_through_score(d_keys, seen, d, q, u, dq, d_taken, m):
    """d, the gradient of q . h_ij, goes on to q and, in d_keys, to h_ij; u . d_keys follows."""
    zero, n, reflects = d.dtype.type(0), seen.shape[0], u.shape[0] > 0
    for j in range(m):
        d_taken[j] = 0
    c = 0
    while reflects and c + 2 <= n:
        q0, q1, u0, u1, dq0, dq1 = q[c], q[c + 1], u[c], u[c + 1], zero, zero
        for j in range(m):
            d0, d1 = d_keys[c, j] + q0 * d[j], d_keys[c + 1, j] + q1 * d[j]
            d_keys[c, j], d_keys[c + 1, j] = d0, d1
            dq0 += d[j] * seen[c, j]
            dq1 += d[j] * seen[c + 1, j]
            d_taken[j] += u0 * d0 + u1 * d1
        dq[c], dq[c + 1] = dq0, dq1
        c += 2
    while c < n:
        q0, u0, dq0 = q[c], u[c] if reflects else zero, zero
        for j in range(m):
            d0 = d_keys[c, j] + q0 * d[j]
            d_keys[c, j] = d0
            dq0 += d[j] * seen[c, j]
            d_taken[j] += u0 * d0
        dq[c] = dq0
        c += 1


@inlined
@no_type_check
def back_through_features(d_keys, features, slopes, d, q, u, dq, d_taken, m):
    """The same for the score q . psi(h_ij)."""
    zero = d.dtype.type(0)
    for j in range(m):
        d_taken[j] = 0
    for c in range(features.shape[0]):
        q0, u0, dq0 = q[c], u[c] if u.shape[0] > 0 else zero, zero
        for j in range(m):
            d0 = d_keys[c, j] + q0 * d[j] * slopes[c, j]
            d_keys[c, j] = d0
            dq0 += d[j] * features[c, j]
            d_taken[j] += u0 * d0
        dq[c] = dq0


@inlined
@no_type_check
def back_through_transition(d_keys, before, taken, d_taken, a, w, i, da, dw, du, m):
    """d_keys of h_ij becomes that of h_{i-1,j}; the gradients of A_i."""
    decays, reflects = a.shape[1], w.shape[1] > 0
    zero, one, d_all = d_keys.dtype.type(0), d_keys.dtype.type(1), d_keys.dtype.type(0)
    for c in range(d_keys.shape[0]):
        ac = one if decays == 0 else a[i, c if decays > 1 else 0]
        total, along, lost = zero, zero, zero
        if reflects and decays == 0:
            wc = w[i, c]
            for j in range(m):
                d_h = d_keys[c, j]
                lost += d_h * taken[j]
                along += d_taken[j] * before[c, j]
                d_keys[c, j] = d_h - wc * d_taken[j]
        elif reflects:
            wc = w[i, c]
            for j in range(m):
                lost += d_keys[c, j] * taken[j]
                d_h = d_keys[c, j] - wc * d_taken[j]
                along += d_taken[j] * before[c, j]
                total += d_h * before[c, j]
                d_keys[c, j] = d_h * ac
        elif decays > 0:
            for j in range(m):
                total += d_keys[c, j] * before[c, j]
                d_keys[c, j] *= ac
        if reflects:
            du[i, c], dw[i, c] = -lost, -along * ac
        if decays > 1:
            da[i, c] = total
        d_all += total
    if decays == 1:
        da[i, 0] = d_all


@no_type_check
def backward(
    q, k, v, a, w, u, g, code, psi, polynomial, rule, least, shift, unit, total, y, segment,
    dy, dq, dk, dv, da, dw, du, dg, start, end,
):  # fmt: skip
    """What A_t has made of the keys is computed again, `segment` steps at a time: a multiple of
    ROWS."""
    heads, length, n, p = q.shape[1], q.shape[2], q.shape[3], v.shape[3]
    decays, reflects, added = a.shape[3], w.shape[3], g.shape[3] > 0
    moves = reflects > 0 or decays > 1 or psi != NONE
    fades = decays == 1 and not moves
    follows = moves or fades
    zero, one, number = q.dtype.type(0), q.dtype.type(1), q.dtype
    segment = segment if follows else length + ROWS
    count = (length + segment - 1) // segment
    channels = n if moves else 1 if fades else 0
    wide = lanes(length)
    keys, values = np.zeros((n, wide), number), np.zeros((p, wide), number)
    d_keys, d_values = np.zeros((n, wide), number), np.zeros((p, wide), number)
    states = np.zeros((segment + 1 if follows else 0, channels, wide), number)
    starts = np.zeros((count + 1, channels, wide), number)
    taken = np.zeros((segment if follows else 0, wide), number)
    s, alpha = np.zeros((ROWS, wide), number), np.zeros((ROWS, wide), number)
    slope, d = np.zeros((ROWS, wide), number), np.zeros((ROWS, wide), number)
    raw, featured = np.zeros((ROWS, wide), number), 0 if psi == NONE else n
    features = np.zeros((ROWS, featured, wide), number)
    slopes = np.zeros((ROWS, featured, wide), number)
    d_taken = np.zeros(wide, number)
    d_factor, d_added = np.zeros(wide, number), np.zeros(wide, number)
    ai, wi, ui = np.zeros(decays, number), np.zeros(reflects, number), np.zeros(reflects, number)
    dqi, rests = np.zeros(n, number), np.zeros(ROWS, number)
    qs, dys = np.zeros((ROWS, n), number), np.zeros((ROWS, p), number)
    for b_h in range(start, end):
        b, h = b_h // heads, b_h % heads
        load(v[b, h], values)
        if not moves:
            load(k[b, h], keys)
        d_keys[:], d_values[:], d_factor[:], d_added[:] = 0, 0, 0, 0
        if follows:
            states[0, :, :] = 0
            starts[0, :, :] = 0
            for part in range(count - 1):
                states_of(part * segment, (part + 1) * segment, k[b, h], a[b, h], w[b, h], u[b, h],
                          moves, states, taken, ai, wi, ui)  # fmt: skip
                states[0] = states[segment]
                starts[part + 1] = states[segment]
        for part in range(count - 1, -1, -1):
            first, last = part * segment, min((part + 1) * segment, length)
            if follows:
                states[0] = starts[part]
                states_of(first, last, k[b, h], a[b, h], w[b, h], u[b, h], moves, states, taken,
                          ai, wi, ui)  # fmt: skip
            for tile in range((last - 1) // ROWS * ROWS, first - 1, -ROWS):
                m, rows = (tile // LANES + 1) * LANES, min(ROWS, last - tile)
                for r in range(ROWS):
                    i = tile + r
                    if r >= rows:
                        qs[r], dys[r], s[r, :m], d[r, :m], rests[r] = 0, 0, 0, 0, 0
                        continue
                    for c in range(n):
                        qs[r, c] = q[b, h, i, c]
                    rests[r] = dy[b, h, i, p] if rule == BESIDE else zero
                    if rule == DIVIDED:
                        share = zero if total[b, h, i] < least else one / total[b, h, i]
                        for x in range(p):
                            dys[r, x] = share * dy[b, h, i, x]
                            rests[r] -= dys[r, x] * y[b, h, i, x]
                    else:
                        for x in range(p):
                            dys[r, x] = dy[b, h, i, x]
                    seen = states[i - first + 1] if moves else keys
                    if psi == NONE:
                        combine(seen, qs[r], s[r], m)
                    else:
                        read(psi, polynomial, seen, features[r], slopes[r], m)
                        combine(features[r], qs[r], s[r], m)
                    if fades:
                        for j in range(m):
                            raw[r, j] = s[r, j]
                            s[r, j] *= states[i - first + 1, 0, j]
                    if added:
                        add_difference(s[r], g[b, h], i, m)
                    if shift:
                        top = unit[b, h, i]
                        for j in range(m):
                            s[r, j] -= top
                    for j in range(i + 1, m):
                        s[r, j] = 0
                    combine(values, dys[r], d[r], m)
                read(code, polynomial, s, alpha, slope, m)
                for r in range(ROWS):
                    i, rest = tile + r, rests[r]
                    for j in range(m):
                        d[r, j] = (d[r, j] + rest) * slope[r, j]
                    for j in range(i + 1 if r < rows else 0, m):
                        alpha[r, j], d[r, j] = 0, 0
                    if added:
                        for j in range(m):
                            d_added[j] -= d[r, j]
                            d_added[i if r < rows else 0] += d[r, j]
                spread(d_values, dys, alpha, m)
                if fades:
                    for r in range(rows - 1, -1, -1):
                        i = tile + r
                        for j in range(m):
                            d_factor[j] += d[r, j] * raw[r, j]
                            d[r, j] *= states[i - first + 1, 0, j]
                        d_factor[i] = 0
                        d_decay, ac = zero, a[b, h, i, 0]
                        for j in range(m):
                            d_decay += d_factor[j] * states[i - first, 0, j]
                            d_factor[j] *= ac
                        da[b, h, i, 0] = d_decay
                if not moves:
                    spread(d_keys, qs, d, m)
                    for r in range(rows):
                        inner(keys, d[r], dqi, m)
                        for c in range(n):
                            dq[b, h, tile + r, c] = dqi[c]
                    continue
                for r in range(rows - 1, -1, -1):
                    i = tile + r
                    step_of(a[b, h], w[b, h], u[b, h], i, ai, wi, ui)
                    if psi == NONE:
                        back_through_score(
                            d_keys, states[i - first + 1], d[r], qs[r], ui, dqi, d_taken, m
                        )
                    else:
                        back_through_features(
                            d_keys, features[r], slopes[r], d[r], qs[r], ui, dqi, d_taken, m
                        )
                    d_taken[i] = 0
                    for c in range(n):
                        dq[b, h, i, c] = dqi[c]
                        dk[b, h, i, c] = d_keys[c, i]
                        d_keys[c, i] = 0
                    back_through_transition(
                        d_keys, states[i - first], taken[i - first], d_taken, a[b, h], w[b, h], i,
                        da[b, h], dw[b, h], du[b, h], m,
                    )  # fmt: skip
        for j in range(length):
            for x in range(p):
                dv[b, h, j, x] = d_values[x, j]
            if not moves:
                for c in range(n):
                    dk[b, h, j, c] = d_keys[c, j]
            if added:
                dg[b, h, j, 0] = d_added[j]


def types(way: str, number: Any) -> Any:
    """Of the arguments: arrays of any strides."""
    arrays = (number[:, :, :, :],) * 8
    settings = (nb.int64, nb.int64, number[::1], nb.int64, number, nb.boolean)
    rows = (number[:, :, ::1],) * 2  # unit, total
    if way == "forward":
        return (*arrays[:7], *settings, arrays[0], *rows, arrays[0], nb.int64, nb.int64)
    return (*arrays[:7], *settings, *rows, arrays[0], nb.int64, *arrays, nb.int64, nb.int64)
