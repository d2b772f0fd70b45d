"""Measurements of a design on random input, without training.

Queries and keys are standard normal instead of projected, so that the numbers describe the design
and not its weights. A_t, b_j and eta_i are computed with initial weights, from an x that is
standard normal too.
"""

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from coefdyn.config.build import build_design_mixer
from coefdyn.config.compose import Config
from coefdyn.mixer.sequence_mixer import SequenceMixer
from coefdyn.mixer.slots.readout import Identity
from coefdyn.mixer.slots.transition import Transition
from coefdyn.mixer.stream import Projected, for_each, last_of
from coefdyn.model.coefficient_statistics import ZERO

HEAD_DIMENSIONS = (16, 64, 256, 1024)
LENGTHS = (32, 64, 128, 256)
HEADS, WIDTH, BATCH = 4, 64, 4
LARGEST_SPECTRUM = 16  # head dimension up to which eigenvalues are computed


@dataclass(frozen=True)
class Trend:
    """A quantity at several sizes; `exponent` is the power of the size by which it grows."""

    sizes: tuple[int, ...]
    values: tuple[float, ...]

    @property
    def exponent(self) -> float:
        x = torch.tensor(self.sizes, dtype=torch.float64).log()
        y = torch.tensor(self.values, dtype=torch.float64).clamp(1e-300, 1e300).log()
        x, y = x - x.mean(), y - y.mean()
        return float((x * y).sum() / (x * x).sum())

    def at(self, size: int) -> float:
        """The quantity at `size`, by the power law through the nearest measured size."""
        nearest = min(range(len(self.sizes)), key=lambda i: abs(math.log(self.sizes[i] / size)))
        return self.values[nearest] * (size / self.sizes[nearest]) ** self.exponent


def mixer_of(config: Config, head_dimension: int, heads: int = HEADS) -> SequenceMixer:
    """The design's mixer at another size, in float64, initialized with a fixed seed."""
    sizes = {"n_state": head_dimension * heads, "n_heads": heads, "d_model": WIDTH}
    sizes |= {"d_value": heads}
    values = copy.deepcopy(config.values)
    _resize(values["model"], sizes)
    values["model"]["backend"] = "auto"
    with torch.random.fork_rng():
        torch.manual_seed(0)
        mixer = build_design_mixer(Config(values, config.choices))
    return mixer.double().eval()


def _resize(node: dict[str, Any], sizes: dict[str, int]) -> None:
    """Set the sizes in `node` and in its slots, which use the same names, in place."""
    for key, value in node.items():
        if key in sizes:
            node[key] = sizes[key]
        elif isinstance(value, dict):
            _resize(value, sizes)


def random_input(mixer: SequenceMixer, batch: int, length: int, seed: int = 0) -> Projected:
    """x, q, k, v and z of independent standard normal numbers; unit q and k with `unit_qk`."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    steps = length * mixer.design.evolution.repeats
    shape = (batch, mixer.n_heads, steps, mixer.width)
    q, k, z = normal(batch, mixer.n_heads, length, mixer.width), normal(*shape), normal(*shape)
    if mixer.unit_qk:
        q, k = (F.normalize(x, dim=-1) for x in (q, k))
    direction = z if mixer.design.evolution.own_direction else k
    v = normal(batch, mixer.n_heads, steps, mixer.value_width)
    return Projected(normal(batch, length, mixer.d_model), q, k, v, direction)


def scale(mixer: SequenceMixer, given: Projected) -> Float[Tensor, "#b #h #t"]:
    """b_j; where A_t repeats, of each of its steps."""
    design = mixer.design
    b = design.scaling(given.x, _transition(mixer, given))
    b = for_each(b, given.k.shape[2], design.evolution.repeats)
    return b.exp() if design.scaling.log_space else b


@torch.no_grad()
def score_variance(config: Config, sizes: Sequence[int] = HEAD_DIMENSIONS) -> Trend:
    """E[(q_i . b_i k_i)^2] against the head dimension: the score of a key just written."""
    values = []
    for size in sizes:
        mixer = mixer_of(config, size)
        projected = random_input(mixer, BATCH, 64)
        keys = projected.k * scale(mixer, projected).unsqueeze(-1)
        score = (projected.q * last_of(keys, mixer.design.evolution.repeats)).sum(-1)
        values.append(float(score.square().mean()))
    return Trend(tuple(sizes), tuple(values))


@dataclass(frozen=True)
class ZeroShare:
    """The share of random pairs of a query and a key whose kernel is exactly zero.

    `measured` is by sampling. `exact` is (1 - (1 - p)^2)^n, where p is the share of normal numbers
    at which psi is zero.
    """

    measured: float
    exact: float


@torch.no_grad()
def kernel_zeros(mixer: SequenceMixer, pairs: int = 2**16) -> ZeroShare:
    """How often psi(q) . psi(k) = 0 for q and k of independent standard normal numbers."""
    psi, n = mixer.design.readout.feature_map, mixer.width
    assert psi is not None
    generator = torch.Generator().manual_seed(0)
    q, k = torch.randn(2, pairs, n, generator=generator, dtype=torch.float64)
    places = (torch.arange(2**16, dtype=torch.float64) + 0.5) / 2**16
    zero = float((psi(torch.special.ndtri(places)) == 0).double().mean())
    share = float(((psi(q) * psi(k)).sum(-1) == 0).double().mean())
    return ZeroShare(share, (1 - (1 - zero) ** 2) ** n)


@torch.no_grad()
def zeros_and_ranks(
    mixer: SequenceMixer, length: int, sequences: int
) -> tuple[Float[Tensor, " t"], Float[Tensor, " t"]]:
    """At each step i, how many |alpha_ij| are at most 1e-6, and how many dimensions their states
    span; means over sequences and heads.

    The states are h_ij, or psi(h_ij) for a kernel. If m of them, as the columns of H, have such
    coefficients, |H^T q| <= 1e-6 sqrt(m), so H has a singular value of at most 1e-6 sqrt(m) / |q|.
    Only singular values above that count as a dimension, n - 1 at most.
    """
    design, projected = mixer.design, random_input(mixer, sequences, length)
    A = _transition(mixer, projected).matrices(like=projected.k)
    written_keys = projected.k * scale(mixer, projected).expand(projected.k.shape[:3]).unsqueeze(-1)
    features = design.readout.feature_map or Identity()
    states, zeros, ranks = written_keys[..., :0, :], [], []
    for i in range(length):
        states = torch.cat([states @ A[:, :, i].mT, written_keys[:, :, i : i + 1]], dim=-2)
        q, h = features(projected.q[:, :, i]), features(states)
        zero = (h @ q.unsqueeze(-1)).abs() <= ZERO
        number = zero.sum((-2, -1))
        least = ZERO * number.sqrt() / q.norm(dim=-1)
        ranks.append((torch.linalg.svdvals(h * zero) > least.unsqueeze(-1)).sum(-1).double().mean())
        zeros.append(number.double().mean())
    return torch.stack(zeros), torch.stack(ranks)


@torch.no_grad()
def coefficient_growth(
    config: Config, head_dimension: int, lengths: Sequence[int] = LENGTHS
) -> Trend:
    """The largest |alpha_ij/eta_i| of a row against the length: the median over the rows of the
    last quarter, infinite where it overflows."""
    mixer, values = mixer_of(config, head_dimension, heads=2), []
    for length in lengths:
        weights = normalized_coefficients(mixer, random_input(mixer, 2, length))
        rows = weights[:, :, 3 * length // 4 :].abs().nan_to_num(math.inf, math.inf).amax(-1)
        values.append(float(rows.flatten().median()))
    return Trend(tuple(lengths), tuple(values))


def normalized_coefficients(mixer: SequenceMixer, given: Projected) -> Float[Tensor, "b h i j"]:
    coefficients = mixer.design.coefficients(given)
    return coefficients.alpha / coefficients.eta.unsqueeze(-1)


@torch.no_grad()
def positional_difference(config: Config, head_dimension: int) -> float:
    """How much the coefficients of two equal tokens at different places differ.

    The difference is relative to the largest coefficient of the row. The tokens go through the
    mixer's own projection and preprocessing.
    """
    mixer, length = mixer_of(config, head_dimension, heads=2), 16
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(4, length, mixer.d_model, generator=generator, dtype=torch.float64)
    first, second = 5, 11
    x[:, second] = x[:, first]
    alpha = mixer.design.coefficients(mixer.projected(x)).alpha[:, :, -1]
    alpha = last_of(alpha, mixer.design.evolution.repeats)
    size = alpha.abs().amax(-1).clamp(min=1e-300)
    return float(((alpha[..., first] - alpha[..., second]).abs() / size).max())


@torch.no_grad()
def spectrum(config: Config, head_dimension: int) -> Tensor:
    """Eigenvalues of A_t on random input, complex."""
    mixer = mixer_of(config, min(head_dimension, LARGEST_SPECTRUM))
    projected = random_input(mixer, 2, 16)
    A = _transition(mixer, projected).matrices(projected.k)
    first, *others = A.unflatten(2, (-1, mixer.design.evolution.repeats)).unbind(3)
    for other in others:
        first = other @ first
    return torch.linalg.eigvals(first).flatten()


def _transition(mixer: SequenceMixer, projected: Projected) -> Transition:
    return mixer.design.evolution(projected.x, projected.direction)


@torch.no_grad()
def scales_channels_apart(config: Config) -> bool:
    mixer = mixer_of(config, 4)
    return _transition(mixer, random_input(mixer, 1, 2)).per_channel
