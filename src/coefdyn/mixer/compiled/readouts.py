"""Readouts and their derivatives, compiled. A readout of slots/ names the one that computes it."""

import math
from typing import no_type_check

import numpy as np

from coefdyn.mixer.compiled.rows import APART, FAST, exactly, jit

NONE, IDENTITY, EXP, RELU, SOFTPLUS, SIGMOID, ELU_PLUS_ONE = -1, 0, 1, 2, 3, 4, 5
SILU, GELU, TANH, RELU_SQUARED, POLYNOMIAL = 6, 7, 8, 9, 10
CODES = {
    "identity": IDENTITY, "exp": EXP, "relu": RELU, "softplus": SOFTPLUS, "sigmoid": SIGMOID,
    "elu_plus_one": ELU_PLUS_ONE, "silu": SILU, "gelu": GELU, "tanh": TANH,
    "relu_squared": RELU_SQUARED, "polynomial": POLYNOMIAL,
}  # fmt: skip
F = np.float32
# Not inlined: it would be compiled again wherever it is used.
called = jit(fastmath=FAST, error_model="numpy", **APART)


@exactly
@no_type_check
def exp(x, double):
    """e^x. float32: a polynomial on |r| <= log(2)/2, times powers of two that are made of bits, in
    two steps since one would not reach the smallest and largest numbers. libm's exp would not
    become vector code."""
    if double:
        return math.exp(x)
    x = F(-104.0) if x < F(-104.0) else x
    x = F(89.0) if x > F(89.0) else x
    t = np.floor(x * F(1.44269504088896341) + F(0.5))
    r = x - t * F(0.693359375) + t * F(2.12194440e-4)
    y = F(1.9875691500e-4) * r + F(1.3981999507e-3)
    y = y * r + F(8.3334519073e-3)
    y = y * r + F(4.1665795894e-2)
    y = y * r + F(1.6666665459e-1)
    y = y * r + F(5.0000001201e-1)
    y = y * (r * r) + r + F(1.0)
    power = np.int32(t)
    half = np.int32(power >> np.int32(1))
    one = np.int32((half + np.int32(127)) << np.int32(23)).view(np.float32)
    other = np.int32((power - half + np.int32(127)) << np.int32(23)).view(np.float32)
    return y * one * other


@exactly
@no_type_check
def sigmoid(x, double):
    """1/(1 + e^-x)."""
    e = exp(-abs(x), double)
    return (e if x < F(0.0) else F(1.0)) / (F(1.0) + e)


@exactly
@no_type_check
def log_one_plus(z, double):
    """log(1 + z) for z in [0, 1]. float32: z times a polynomial, interpolated at Chebyshev's
    points; off by less than 2e-7 of itself."""
    if double:
        return math.log1p(z)
    y = F(0.005253457929939032) * z + F(-0.02958850748836994)
    y = y * z + F(0.07836166769266129)
    y = y * z + F(-0.13674770295619965)
    y = y * z + F(0.19111430644989014)
    y = y * z + F(-0.24844369292259216)
    y = y * z + F(0.33319270610809326)
    y = y * z + F(-0.49999502301216125)
    return z * (y * z + F(1.0))


@exactly
@no_type_check
def tanh(x, double):
    """Near zero by its series, where the quotient would lose digits."""
    if double:
        return math.tanh(x)
    e = exp(F(-2.0) * abs(x), double)
    far = (F(1.0) - e) / (F(1.0) + e)
    z = x * x
    y = F(-0.0088632355) * z + F(0.0218694885)
    y = y * z + F(-0.0539682540)
    y = y * z + F(0.1333333333)
    y = y * z + F(-0.3333333333)
    return x + x * z * y if abs(x) < F(0.35) else (far if x > F(0.0) else -far)


@exactly
@no_type_check
def normal_distribution(x, double):
    """The share of a standard normal below x, to 2e-7 of itself: erfc by Chebyshev's polynomials
    (Press et al., Numerical Recipes, 6.2)."""
    if double:
        return 0.5 * math.erfc(-x * 0.7071067811865476)
    z = abs(x) * F(0.70710678118)
    t = F(1.0) / (F(1.0) + F(0.5) * z)
    y = F(0.17087277) * t + F(-0.82215223)
    y = y * t + F(1.48851587)
    y = y * t + F(-1.13520398)
    y = y * t + F(0.27886807)
    y = y * t + F(-0.18628806)
    y = y * t + F(0.09678418)
    y = y * t + F(0.37409196)
    y = y * t + F(1.00002368)
    y = y * t + F(-1.26551223)
    below = F(0.5) * t * exp(y - z * z, double)
    return below if x < F(0.0) else F(1.0) - below


@called
@no_type_check
def read(code, polynomial, s, alpha, slope, m):
    """alpha = phi(s), and slope = phi'(s) unless it has no rows, of the first m columns. A NaN
    stays one."""
    zero, one, double = s.dtype.type(0), s.dtype.type(1), s.itemsize == 8
    count, sloped = s.shape[0], slope.shape[0]  # rows of values, and of slopes: as many or none
    if code == IDENTITY:
        for r in range(count):
            for j in range(m):
                alpha[r, j] = s[r, j]
        for r in range(sloped):
            for j in range(m):
                slope[r, j] = one
    elif code == EXP:
        for r in range(count):
            for j in range(m):
                alpha[r, j] = exp(s[r, j], double)
        for r in range(sloped):
            for j in range(m):
                slope[r, j] = alpha[r, j]
    elif code == RELU:
        for r in range(count):
            for j in range(m):
                alpha[r, j] = zero if s[r, j] <= zero else s[r, j]
        for r in range(sloped):
            for j in range(m):
                slope[r, j] = zero if s[r, j] <= zero else one
    elif code == SOFTPLUS and sloped:
        for r in range(count):
            for j in range(m):
                x = s[r, j]
                z = exp(-abs(x), double)
                alpha[r, j] = (x if x > zero else zero) + log_one_plus(z, double)
                slope[r, j] = (z if x < zero else one) / (one + z)
    elif code == SOFTPLUS:
        for r in range(count):
            for j in range(m):
                x = s[r, j]
                z = exp(-abs(x), double)
                alpha[r, j] = (x if x > zero else zero) + log_one_plus(z, double)
    elif code == SIGMOID:
        for r in range(count):
            for j in range(m):
                alpha[r, j] = sigmoid(s[r, j], double)
        for r in range(sloped):
            for j in range(m):
                slope[r, j] = alpha[r, j] * (one - alpha[r, j])
    elif code == ELU_PLUS_ONE:
        for r in range(count):
            for j in range(m):
                x = s[r, j]
                alpha[r, j] = exp(zero if x > zero else x, double) + (x if x > zero else zero)
        for r in range(sloped):
            for j in range(m):
                slope[r, j] = one if alpha[r, j] > one else alpha[r, j]
    elif code == SILU:
        for r in range(count):
            for j in range(m):
                alpha[r, j] = sigmoid(s[r, j], double)
        for r in range(sloped):
            for j in range(m):
                slope[r, j] = alpha[r, j] * (one + s[r, j] * (one - alpha[r, j]))
        for r in range(count):
            for j in range(m):
                alpha[r, j] *= s[r, j]
    elif code == GELU:
        for r in range(count):
            for j in range(m):
                alpha[r, j] = normal_distribution(s[r, j], double)
        for r in range(sloped):
            for j in range(m):
                x = s[r, j]
                bell = s.dtype.type(0.3989422804014327) * exp(x * x * s.dtype.type(-0.5), double)
                slope[r, j] = alpha[r, j] + x * bell
        for r in range(count):
            for j in range(m):
                alpha[r, j] *= s[r, j]
    elif code == TANH:
        for r in range(count):
            for j in range(m):
                alpha[r, j] = tanh(s[r, j], double)
        for r in range(sloped):
            for j in range(m):
                slope[r, j] = one - alpha[r, j] * alpha[r, j]
    elif code == RELU_SQUARED:
        for r in range(count):
            for j in range(m):
                x = zero if s[r, j] <= zero else s[r, j]
                alpha[r, j] = x * x
        for r in range(sloped):
            for j in range(m):
                slope[r, j] = zero if s[r, j] <= zero else s[r, j] + s[r, j]
    else:
        degree = polynomial.shape[0] - 1
        for r in range(count):
            for j in range(m):
                alpha[r, j] = polynomial[degree]
            for c in range(degree - 1, -1, -1):
                for j in range(m):
                    alpha[r, j] = alpha[r, j] * s[r, j] + polynomial[c]
        for r in range(sloped):
            for j in range(m):
                slope[r, j] = degree * polynomial[degree]
            for c in range(degree - 1, 0, -1):
                for j in range(m):
                    slope[r, j] = slope[r, j] * s[r, j] + c * polynomial[c]
