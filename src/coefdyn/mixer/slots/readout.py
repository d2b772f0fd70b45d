"""phi: from the score s = q_i . h_{i,j} to the coefficient alpha_{i,j}. No parameters."""

import itertools
import math
from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from coefdyn.mixer.slots.level_sets import Interval, level_set

aten = torch.ops.aten


class Readout(nn.Module):
    """alpha = phi(s), elementwise.

    Traits, for which `None` and `False` mean "no":
    `polynomial`: the coefficients a_0, a_1, ... of phi(s) = sum_p a_p s^p;
    `nonnegative`: phi >= 0;
    `lower_bound`: a number that a signed phi does not fall below;
    `homogeneous`: the degree d of phi(c s) = c^d phi(s) for c > 0;
    `exponential`: phi(s - m) = e^(-m) phi(s);
    `feature_map`: alpha is a product of features of q and h, on which phi is the identity;
    `compiled`: the loop of compiled/readouts.py for phi; without one, tensor forms are used.
    """

    polynomial: tuple[float, ...] | None = None
    nonnegative = False
    lower_bound: float | None = None
    homogeneous: int | None = None
    exponential = False
    compiled: str | None = None

    def __init__(self, feature_map: "Readout | None" = None) -> None:
        super().__init__()
        self.feature_map = feature_map

    def forward(self, s: Float[Tensor, "*s"]) -> Float[Tensor, "*s"]:
        raise NotImplementedError

    def backward(
        self, grad: Float[Tensor, "*s"], s: Float[Tensor, "*s"], alpha: Float[Tensor, "*s"]
    ) -> Float[Tensor, "*s"]:
        """grad * phi'(s). Subclasses may override it with a cheaper formula in s and alpha."""
        pull_back = torch.func.vjp(self.forward, s)[1]
        (grad_s,) = pull_back(grad)
        return grad_s

    def measure(self, q: Float[Tensor, "*b n"], h: Float[Tensor, "*b n"]) -> Float[Tensor, "*b"]:
        """alpha_ij from the vectors q_i and h_ij, for `definition.py`."""
        return self((q * h).sum(-1))

    @property
    def polynomial_degree(self) -> int | None:
        return None if self.polynomial is None else len(self.polynomial) - 1

    def near_zero_set(self, eps: float) -> list[Interval]:
        """The intervals of s on which |phi(s)| <= eps; numerical unless a subclass overrides it."""
        return level_set(lambda s: self(torch.tensor(s, dtype=torch.float64)).abs().item(), eps)


class Exp(Readout):
    """phi(s) = e^s: positive, near zero for s <= log(eps)."""

    compiled = "exp"
    nonnegative = True
    exponential = True

    def forward(self, s: Float[Tensor, "*s"]) -> Float[Tensor, "*s"]:
        return torch.exp(s)

    def backward(
        self, grad: Float[Tensor, "*s"], s: Float[Tensor, "*s"], alpha: Float[Tensor, "*s"]
    ) -> Float[Tensor, "*s"]:
        return grad * alpha

    def near_zero_set(self, eps: float) -> list[Interval]:
        return [(-math.inf, math.log(eps))]


class Softplus(Readout):
    """phi(s) = log(1 + e^s): positive, near zero for s <= log(e^eps - 1)."""

    compiled = "softplus"
    nonnegative = True

    def forward(self, s: Float[Tensor, "*s"]) -> Float[Tensor, "*s"]:
        return F.softplus(s, threshold=40.0)  # the default 20 costs float64 its last digits

    def backward(
        self, grad: Float[Tensor, "*s"], s: Float[Tensor, "*s"], alpha: Float[Tensor, "*s"]
    ) -> Float[Tensor, "*s"]:
        return grad * torch.sigmoid(s)

    def near_zero_set(self, eps: float) -> list[Interval]:
        return [(-math.inf, math.log(math.expm1(eps)))]


class Relu(Readout):
    """phi(s) = max(s, 0): exactly zero for s <= 0, near zero for s <= eps."""

    compiled = "relu"
    nonnegative = True
    homogeneous = 1

    def forward(self, s: Float[Tensor, "*s"]) -> Float[Tensor, "*s"]:
        return F.relu(s)

    def backward(
        self, grad: Float[Tensor, "*s"], s: Float[Tensor, "*s"], alpha: Float[Tensor, "*s"]
    ) -> Float[Tensor, "*s"]:
        return aten.threshold_backward(grad, alpha, 0)

    def near_zero_set(self, eps: float) -> list[Interval]:
        return [(-math.inf, eps)]


class Identity(Readout):
    """phi(s) = s: near zero only for |s| <= eps."""

    compiled = "identity"
    polynomial = (0.0, 1.0)
    homogeneous = 1

    def forward(self, s: Float[Tensor, "*s"]) -> Float[Tensor, "*s"]:
        return s

    def backward(
        self, grad: Float[Tensor, "*s"], s: Float[Tensor, "*s"], alpha: Float[Tensor, "*s"]
    ) -> Float[Tensor, "*s"]:
        return grad

    def near_zero_set(self, eps: float) -> list[Interval]:
        return [(-eps, eps)]


class Sigmoid(Readout):
    """phi(s) = 1/(1 + e^-s): in (0, 1), near zero for s <= log(eps/(1 - eps))."""

    compiled = "sigmoid"
    nonnegative = True

    def forward(self, s: Float[Tensor, "*s"]) -> Float[Tensor, "*s"]:
        return torch.sigmoid(s)

    def backward(
        self, grad: Float[Tensor, "*s"], s: Float[Tensor, "*s"], alpha: Float[Tensor, "*s"]
    ) -> Float[Tensor, "*s"]:
        return aten.sigmoid_backward(grad, alpha)

    def near_zero_set(self, eps: float) -> list[Interval]:
        return [(-math.inf, math.log(eps / (1 - eps)))]


class EluPlusOne(Readout):
    """phi(s) = s + 1 for s > 0, e^s otherwise: positive, near zero for s <= log(eps)."""

    compiled = "elu_plus_one"
    nonnegative = True

    def forward(self, s: Float[Tensor, "*s"]) -> Float[Tensor, "*s"]:
        # e^min(s,0) + max(s,0): elu(s) + 1 would round e^s away for very negative s.
        return torch.exp(s.clamp(max=0)) + s.clamp(min=0)

    def backward(
        self, grad: Float[Tensor, "*s"], s: Float[Tensor, "*s"], alpha: Float[Tensor, "*s"]
    ) -> Float[Tensor, "*s"]:
        return grad * alpha.clamp(max=1)

    def near_zero_set(self, eps: float) -> list[Interval]:
        return [(-math.inf, math.log(eps))]


class Silu(Readout):
    """phi(s) = s sigmoid(s): at least -0.279, near zero around 0 and for very negative s."""

    compiled = "silu"
    lower_bound = -0.2785

    def forward(self, s: Float[Tensor, "*s"]) -> Float[Tensor, "*s"]:
        return F.silu(s)


class Gelu(Readout):
    """phi(s) = s Phi(s), Phi the normal distribution function: at least -0.170."""

    compiled = "gelu"
    lower_bound = -0.17

    def forward(self, s: Float[Tensor, "*s"]) -> Float[Tensor, "*s"]:
        return F.gelu(s)


class Tanh(Readout):
    """phi(s) = tanh(s): in (-1, 1), near zero for |s| <= artanh(eps)."""

    compiled = "tanh"
    lower_bound = -1.0

    def forward(self, s: Float[Tensor, "*s"]) -> Float[Tensor, "*s"]:
        return torch.tanh(s)

    def backward(
        self, grad: Float[Tensor, "*s"], s: Float[Tensor, "*s"], alpha: Float[Tensor, "*s"]
    ) -> Float[Tensor, "*s"]:
        return aten.tanh_backward(grad, alpha)

    def near_zero_set(self, eps: float) -> list[Interval]:
        return [(-math.atanh(eps), math.atanh(eps))]


class ReluSquared(Readout):
    """phi(s) = max(s, 0)^2: near zero for s <= sqrt(eps)."""

    compiled = "relu_squared"
    nonnegative = True
    homogeneous = 2

    def forward(self, s: Float[Tensor, "*s"]) -> Float[Tensor, "*s"]:
        return F.relu(s).square()

    def near_zero_set(self, eps: float) -> list[Interval]:
        return [(-math.inf, math.sqrt(eps))]


class Polynomial(Readout):
    """phi(s) = sum_p a_p s^p, a_p = `coefficients`: a finite recurrent state (Lemma 1)."""

    compiled = "polynomial"

    def __init__(self, coefficients: Sequence[float] = (0.0, 1.0, 0.5)) -> None:
        super().__init__()
        if len(coefficients) < 2 or coefficients[-1] == 0:
            raise ValueError(
                f"readout=polynomial coefficients={list(coefficients)} must be a_0, a_1, ...: at "
                "least two numbers, of which the last is not 0"
            )
        self.polynomial = tuple(float(a) for a in coefficients)
        if sum(a != 0 for a in coefficients) == 1:  # a_p s^p alone
            self.homogeneous = len(coefficients) - 1
            self.nonnegative = self.homogeneous % 2 == 0 and coefficients[-1] > 0

    def forward(self, s: Float[Tensor, "*s"]) -> Float[Tensor, "*s"]:
        assert self.polynomial is not None
        value = torch.full_like(s, self.polynomial[-1])
        for a in reversed(self.polynomial[:-1]):
            value = value * s + a
        return value

    def near_zero_set(self, eps: float) -> list[Interval]:
        assert self.polynomial is not None
        p = np.polynomial.Polynomial(self.polynomial)
        roots = np.concatenate([(p - eps).roots(), (p + eps).roots()])
        ends = [-math.inf, *np.sort(roots[np.abs(roots.imag) < 1e-9].real).tolist(), math.inf]
        # Beyond the outermost roots |phi| > eps. Between neighbours, one point decides for all.
        inner = itertools.pairwise(ends[1:-1])
        return [(low, high) for low, high in inner if abs(p((low + high) / 2)) <= eps]


class TaylorExp(Polynomial):
    """phi(s) = sum_{p <= degree} s^p / p!: positive where the degree is even."""

    def __init__(self, degree: int = 2) -> None:
        if degree < 1:
            raise ValueError(f"readout=taylor_exp needs a degree of at least 1, not {degree}")
        super().__init__([1 / math.factorial(p) for p in range(degree + 1)])
        self.nonnegative = degree % 2 == 0


class Kernel(Readout):
    """alpha = psi(q)^T psi(h), psi = `feature_map` per channel: the identity on features.

    The score s is this product of features, so phi is the identity on s >= 0.
    """

    nonnegative = True

    def __init__(self, feature_map: Readout) -> None:
        super().__init__(feature_map)
        elementwise = feature_map.feature_map is None
        if not (feature_map.nonnegative and elementwise and feature_map.homogeneous in (None, 1)):
            raise ValueError(
                "the feature map of a kernel readout must be elementwise, nonnegative and, if "
                "homogeneous, of degree 1, such as relu, elu_plus_one, softplus or exp"
            )
        self.homogeneous = feature_map.homogeneous

    def forward(self, s: Float[Tensor, "*s"]) -> Float[Tensor, "*s"]:
        return s

    def measure(self, q: Float[Tensor, "*b n"], h: Float[Tensor, "*b n"]) -> Float[Tensor, "*b"]:
        assert self.feature_map is not None
        return (self.feature_map(q) * self.feature_map(h)).sum(-1)

    def near_zero_set(self, eps: float) -> list[Interval]:
        return [(0.0, eps)]
