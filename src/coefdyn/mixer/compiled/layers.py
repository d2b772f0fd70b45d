"""What stands around the sequence model, compiled: one pass where torch needs ten.

    norm:   y = w x / sqrt(mean(x^2) + eps)        unit:  y = x / max(|x|, eps)
    features: y = phi(x), and phi'(x)
    scaled: y = s x, divided: y = x/s, s per row   growth: see `Transition.growth`
    gated:  y = SiLU(a) b                          conv:  y_t = SiLU(sum_s kernel_s x_{t-width+1+s})

Arrays are rows of channels, conv's (b, t, channels), unit's (b, h, t, channels); a call computes
rows, or sequences, from `start` to `end`. Gradients of weights are summed over each of a fixed
number of parts on its own, so that no bit depends on the number of threads.
"""

from typing import Any, no_type_check

import numba as nb
import numpy as np

from coefdyn.mixer.compiled.readouts import read, sigmoid
from coefdyn.mixer.compiled.rows import inlined

PARTS = 16  # of the rows, each with its own sum of gradients of weights


@inlined
@no_type_check
def norm_row(x, w, y, eps):
    total = x.dtype.type(0)
    for c in range(x.shape[0]):
        total += x[c] * x[c]
    scale = x.dtype.type(1) / np.sqrt(total / x.shape[0] + eps)
    for c in range(x.shape[0]):
        y[c] = x[c] * scale * w[c]


@no_type_check
def norm(x, w, eps, y, start, end):
    for t in range(start, end):
        norm_row(x[t], w, y[t], eps)


@inlined
@no_type_check
def norm_row_back(x, w, dy, dx, dw, eps):
    total, along = x.dtype.type(0), x.dtype.type(0)
    for c in range(x.shape[0]):
        total += x[c] * x[c]
        along += x[c] * w[c] * dy[c]
    scale = x.dtype.type(1) / np.sqrt(total / x.shape[0] + eps)
    off = along * scale * scale / x.shape[0]
    for c in range(x.shape[0]):
        dw[c] += dy[c] * x[c] * scale
        dx[c] = scale * (w[c] * dy[c] - x[c] * off)


@no_type_check
def norm_back(x, w, eps, dy, dx, dw, start, end):
    """`start` and `end` count parts of the rows."""
    for part in range(start, end):
        for t in range(x.shape[0] * part // PARTS, x.shape[0] * (part + 1) // PARTS):
            norm_row_back(x[t], w, dy[t], dx[t], dw[part], eps)


@inlined
@no_type_check
def unit_row(x, y, eps):
    total = x.dtype.type(0)
    for c in range(x.shape[0]):
        total += x[c] * x[c]
    size = np.sqrt(total)
    size = eps if size < eps else size
    for c in range(x.shape[0]):
        y[c] = x[c] / size


@no_type_check
def unit(x, eps, y, start, end):
    for b in range(start, end):
        for h in range(x.shape[1]):
            for t in range(x.shape[2]):
                unit_row(x[b, h, t], y[b, h, t], eps)


@inlined
@no_type_check
def unit_row_back(x, dy, dx, eps):
    total, along = x.dtype.type(0), x.dtype.type(0)
    for c in range(x.shape[0]):
        total += x[c] * x[c]
        along += x[c] * dy[c]
    size = np.sqrt(total)
    along = x.dtype.type(0) if size < eps else along / total
    size = eps if size < eps else size
    for c in range(x.shape[0]):
        dx[c] = (dy[c] - x[c] * along) / size


@no_type_check
def unit_back(x, eps, dy, dx, start, end):
    for b in range(start, end):
        for h in range(x.shape[1]):
            for t in range(x.shape[2]):
                unit_row_back(x[b, h, t], dy[b, h, t], dx[b, h, t], eps)


@no_type_check
def scaled(x, s, y, start, end):
    for b in range(start, end):
        for h in range(x.shape[1]):
            for t in range(x.shape[2]):
                for c in range(x.shape[3]):
                    y[b, h, t, c] = x[b, h, t, c] * s[b, h, t]


@no_type_check
def scaled_back(x, s, dy, dx, ds, start, end):
    for b in range(start, end):
        for h in range(x.shape[1]):
            for t in range(x.shape[2]):
                total = x.dtype.type(0)
                for c in range(x.shape[3]):
                    dx[b, h, t, c] = dy[b, h, t, c] * s[b, h, t]
                    total += x[b, h, t, c] * dy[b, h, t, c]
                ds[b, h, t] = total


@no_type_check
def divided(x, s, y, start, end):
    for b in range(start, end):
        for h in range(x.shape[1]):
            for t in range(x.shape[2]):
                for c in range(x.shape[3]):
                    y[b, h, t, c] = x[b, h, t, c] / s[b, h, t]


@no_type_check
def divided_back(y, s, dy, dx, ds, start, end):
    """From y, for x/s^2 could overflow where y/s does not."""
    for b in range(start, end):
        for h in range(y.shape[1]):
            for t in range(y.shape[2]):
                total = y.dtype.type(0)
                for c in range(y.shape[3]):
                    dx[b, h, t, c] = dy[b, h, t, c] / s[b, h, t]
                    total += y[b, h, t, c] * dx[b, h, t, c]
                ds[b, h, t] = -total


@no_type_check
def growth(log_b, log_a, unit, shift, start, end):
    """m_t = max(m_{t-1} + log a_t, log b_t) and m_{t-1} - m_t, in double precision; the first step
    has nothing before it."""
    for b in range(start, end):
        for h in range(log_b.shape[1]):
            before = np.float64(log_b[b, h, 0]) - np.float64(log_a[b, h, 0])
            for t in range(log_b.shape[2]):
                here, grown = np.float64(log_b[b, h, t]), before + np.float64(log_a[b, h, t])
                now = here if here > grown else grown
                unit[b, h, t], shift[b, h, t] = now, before - now
                before = now


@no_type_check
def features(x, code, polynomial, y, slope, start, end):
    read(code, polynomial, x[start:end], y[start:end], slope[start:end], x.shape[1])


@inlined
@no_type_check
def gated_row(a, b, y):
    double = a.itemsize == 8
    for c in range(a.shape[0]):
        y[c] = a[c] * sigmoid(a[c], double) * b[c]


@no_type_check
def gated(a, b, offset, y, start, end):
    """b begins at channel `offset` of its array: the two may be halves of one."""
    m = y.shape[1]
    for t in range(start, end):
        gated_row(a[t, :m], b[t, offset : offset + m], y[t])


@inlined
@no_type_check
def gated_row_back(a, b, dy, da, db):
    one, double = a.dtype.type(1), a.itemsize == 8
    for c in range(a.shape[0]):
        share = sigmoid(a[c], double)
        da[c] = dy[c] * b[c] * share * (one + a[c] * (one - share))
        db[c] = dy[c] * a[c] * share


@no_type_check
def gated_back(a, b, offset, dy, da, db, start, end):
    m = dy.shape[1]
    for t in range(start, end):
        there = slice(offset, offset + m)
        gated_row_back(a[t, :m], b[t, there], dy[t], da[t, :m], db[t, there])


@inlined
@no_type_check
def weighted_onto(x, weight, out):
    for c in range(x.shape[0]):
        out[c] += x[c] * weight[c]


@inlined
@no_type_check
def conv_row(x, kernel, t, out):
    """sum_s kernel_s x_{t-width+1+s}; steps before the first are zero."""
    width = kernel.shape[0]
    for c in range(out.shape[0]):
        out[c] = 0
    for s in range(max(0, width - 1 - t), width):
        weighted_onto(x[t - width + 1 + s], kernel[s], out)


@inlined
@no_type_check
def silu_row(s, y):
    double = s.itemsize == 8
    for c in range(s.shape[0]):
        y[c] = s[c] * sigmoid(s[c], double)


@no_type_check
def conv(x, kernel, y, start, end):
    sums = np.zeros(x.shape[2], x.dtype)
    for b in range(start, end):
        for t in range(x.shape[1]):
            conv_row(x[b], kernel, t, sums)
            silu_row(sums, y[b, t])


@inlined
@no_type_check
def silu_row_back(s, dy):
    one, double = s.dtype.type(1), s.itemsize == 8
    for c in range(s.shape[0]):
        share = sigmoid(s[c], double)
        s[c] = dy[c] * share * (one + s[c] * (one - share))


@no_type_check
def conv_back(x, kernel, dy, dx, d_kernel, start, end):
    """`start` and `end` count parts of the sequences."""
    width, count = kernel.shape[0], x.shape[0]
    sums = np.zeros(x.shape[2], x.dtype)
    for part in range(start, end):
        for b in range(count * part // PARTS, count * (part + 1) // PARTS):
            for t in range(x.shape[1]):
                for c in range(x.shape[2]):
                    dx[b, t, c] = 0
            for t in range(x.shape[1]):
                conv_row(x[b], kernel, t, sums)
                silu_row_back(sums, dy[b, t])
                for s in range(max(0, width - 1 - t), width):
                    weighted_onto(sums, kernel[s], dx[b, t - width + 1 + s])
                    weighted_onto(sums, x[b, t - width + 1 + s], d_kernel[part, s])


def types(number: Any) -> dict[str, Any]:
    """Of each kernel's arguments. Where channels lie side by side, loops become vector code."""
    rows, row, heads = number[:, ::1], number[::1], number[:, :, ::1]
    any_strides, per_row = number[:, :, :, :], number[:, :, :]
    ends = (nb.int64, nb.int64)
    return {
        "norm": (rows, row, number, rows, *ends),
        "norm_back": (rows, row, number, rows, rows, rows, *ends),
        "unit": (any_strides, number, any_strides, *ends),
        "unit_back": (any_strides, number, any_strides, any_strides, *ends),
        "scaled": (any_strides, per_row, any_strides, *ends),
        "scaled_back": (any_strides, per_row, any_strides, any_strides, per_row, *ends),
        "divided": (any_strides, per_row, any_strides, *ends),
        "divided_back": (any_strides, per_row, any_strides, any_strides, per_row, *ends),
        "growth": (per_row, per_row, nb.float64[:, :, :], nb.float64[:, :, :], *ends),
        "features": (rows, nb.int64, row, rows, rows, *ends),
        "gated": (rows, rows, nb.int64, rows, *ends),
        "gated_back": (rows, rows, nb.int64, rows, rows, rows, *ends),
        "conv": (heads, rows, heads, *ends),
        "conv_back": (heads, rows, heads, heads, heads, *ends),
    }
