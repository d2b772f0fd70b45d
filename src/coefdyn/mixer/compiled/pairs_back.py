"""The gradients of compiled/pairs.py. Its docstring says what the arrays are."""

from typing import Any, no_type_check

import numba as nb
import numpy as np

from coefdyn.mixer.compiled.pairs import (
    BESIDE,
    DIVIDED,
    add_difference,
    load,
    settings,
    step_of,
    transform,
)
from coefdyn.mixer.compiled.readouts import NONE, read
from coefdyn.mixer.compiled.rows import LANES, ROWS, combine, inlined, inner, lanes, spread


@inlined
@no_type_check
def states_of(first, last, k, a, w, u, early, moves, states, taken, ai, wi, ui):
    """The keys (or, where A_t only fades, the factors) before and after the steps of a segment,
    and what its reflections take of them; the first of `states` is given. What lies beyond step i
    is zero."""
    for i in range(first, last):
        before, after = states[i - first], states[i - first + 1]
        m = (i // LANES + 1) * LANES
        if i % LANES == 0:
            before[:, i:m] = 0
        step_of(a, w, u, early, i, ai, wi, ui)
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
def back_through_transition(d_keys, before, taken, d_taken, a, w, early, i, da, dw, du, m):
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
        elif reflects and early:
            wc = w[i, c]
            for j in range(m):
                d_h = d_keys[c, j]
                lost += d_h * taken[j]
                along += d_taken[j] * before[c, j]
                total += d_h * before[c, j]
                d_keys[c, j] = d_h * ac - wc * d_taken[j]
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
            du[i, c], dw[i, c] = -lost, -along * (one if early else ac)
        if decays > 1:
            da[i, c] = total
        d_all += total
    if decays == 1:
        da[i, 0] = d_all


@no_type_check
def pairs_back(
    q, k, v, a, w, u, g, early, code, psi, polynomial, rule, least, shift, scale, unit, total, y,
    segment, dy, dq, dk, dv, da, dw, du, dg, start, end,
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
                          early, moves, states, taken, ai, wi, ui)  # fmt: skip
                states[0] = states[segment]
                starts[part + 1] = states[segment]
        for part in range(count - 1, -1, -1):
            first, last = part * segment, min((part + 1) * segment, length)
            if follows:
                states[0] = starts[part]
                states_of(first, last, k[b, h], a[b, h], w[b, h], u[b, h], early, moves, states,
                          taken, ai, wi, ui)  # fmt: skip
            for tile in range((last - 1) // ROWS * ROWS, first - 1, -ROWS):
                m, rows = (tile // LANES + 1) * LANES, min(ROWS, last - tile)
                for r in range(ROWS):
                    i = tile + r
                    if r >= rows:
                        qs[r], dys[r], s[r, :m], d[r, :m], rests[r] = 0, 0, 0, 0, 0
                        continue
                    for c in range(n):
                        qs[r, c] = scale * q[b, h, i, c]
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
                        along_row = zero
                        for j in range(m):
                            d_added[j] -= d[r, j]
                            along_row += d[r, j]
                        d_added[i if r < rows else 0] += along_row
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
                            dq[b, h, tile + r, c] = scale * dqi[c]
                    continue
                for r in range(rows - 1, -1, -1):
                    i = tile + r
                    step_of(a[b, h], w[b, h], u[b, h], early, i, ai, wi, ui)
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
                        dq[b, h, i, c] = scale * dqi[c]
                        dk[b, h, i, c] = d_keys[c, i]
                        d_keys[c, i] = 0
                    back_through_transition(
                        d_keys, states[i - first], taken[i - first], d_taken, a[b, h], w[b, h],
                        early, i, da[b, h], dw[b, h], du[b, h], m,
                    )  # fmt: skip
        for j in range(length):
            for x in range(p):
                dv[b, h, j, x] = d_values[x, j]
            if not moves:
                for c in range(n):
                    dk[b, h, j, c] = d_keys[c, j]
            if added:
                dg[b, h, j, 0], dg[b, h, j, 1] = d_added[j], zero


def types(number: Any) -> Any:
    """Of the arguments: arrays of any strides."""
    arrays = (number[:, :, :, :],) * 8
    rows = (number[:, :, ::1],) * 2  # unit, total
    return (
        *arrays[:7], *settings(number), *rows, arrays[0], nb.int64, *arrays, nb.int64, nb.int64
    )  # fmt: skip
