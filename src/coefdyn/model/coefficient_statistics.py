"""How the coefficients of a trained model are distributed."""

import contextlib
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from coefdyn.mixer.sequence_mixer import SequenceMixer
from coefdyn.mixer.stream import Coefficients, Projected
from coefdyn.model.model import SequenceModel, blocks_of, mixers_of

NEAR_ZERO = 1e-3
NEAR_ONE = 0.9  # up to 1
FAR_BELOW_UNIFORM = 0.1  # times 1/i, the uniform weight in row i
ZERO = 1e-6
FEW = 8  # sequences for statistics that cost more than counting
FOLLOWED_TOKENS = 512  # in the sequences that are followed through training
FOLLOWED = ("near_zero", "near_zero_raw", "near_zero_relative", "near_one", "entropy",
            "score_variance")  # fmt: skip
BLOCK_ROWS = 64
SLICE_ELEMENTS = 2**22  # numbers of alpha at a time, so that passes over them stay in cache


@dataclass
class Counts:
    """Sums over the sequences, for one layer: per head and, for zeros, per step."""

    near_zero: Int64[Tensor, " h"]
    near_one: Int64[Tensor, " h"]
    near_zero_raw: Int64[Tensor, " h"]
    near_one_raw: Int64[Tensor, " h"]
    near_zero_relative: Int64[Tensor, " h"]
    entropy: Float[Tensor, " h"]
    guarded: Int64[Tensor, " h"]
    zeros: Int64[Tensor, "h i"]
    most_zeros: Int64[Tensor, " h"]
    pairs: Int64[Tensor, " h"]

    def add(self, other: "Counts") -> "Counts":
        sums = {name: value + getattr(other, name) for name, value in vars(self).items()}
        sums["most_zeros"] = torch.maximum(self.most_zeros, other.most_zeros)
        return Counts(**sums)


@torch.no_grad()
def coefficient_statistics(model: SequenceModel, tokens: Int64[Tensor, "b t"]) -> dict[str, Any]:
    """Statistics of the coefficients j <= i, overall and per layer and head. Where A_t repeats, a
    step j has several coefficients, each counted.

    near_zero: share with |alpha/eta| <= 1e-3.
    near_one: share with alpha/eta in [0.9, 1].
    ratio: near_one / near_zero, None if nothing is near zero.
    near_zero_raw, near_one_raw, ratio_raw: the same for alpha itself.
    near_zero_relative: share with i |alpha_ij/eta_i| <= 0.1, comparable across lengths.
    entropy: of row i with weights |alpha_ij|, divided by log i, mean over the rows i > 1. It is 1
        for a uniform row and 0 for a single key.
    zeros_per_index: the number of |alpha_ij| <= 1e-6 at each step i, mean over sequences.
    most_zeros: the largest such number.
    guarded_rows: share of rows whose eta was replaced because it was nearly zero.
    score_variance: the variance of q_i . h_ij, from a few sequences; None if not finite.
    effective_rank: e^(entropy of the singular values of alpha/eta), likewise.
    """
    return _counted(model, tokens) | _costly(model, tokens[:FEW], with_rank=True)


def _counted(model: SequenceModel, tokens: Int64[Tensor, "b t"]) -> dict[str, Any]:
    batch, length = tokens.shape
    n_heads = max(mixer.n_heads for mixer in mixers_of(model))
    size = max(1, SLICE_ELEMENTS // (n_heads * length**2))
    layers: list[Counts] = []
    with own_forms(model):
        for part in tokens.split(size):
            counts = [_count(*layer) for layer in layers_of(model, part)]
            layers = [a.add(b) for a, b in zip(layers, counts, strict=True)] if layers else counts
    per_layer = {
        name: torch.stack([getattr(layer, name) for layer in layers]) for name in vars(layers[0])
    }
    return _summary(per_layer, batch * length, batch)


@torch.no_grad()
def brief_statistics(model: SequenceModel, tokens: Int64[Tensor, "b t"]) -> dict[str, Any]:
    """The statistics named in `FOLLOWED`, from a few sequences: cheap enough during training."""
    few = tokens[: max(1, min(FEW, FOLLOWED_TOKENS // tokens.shape[1]))]
    statistics = _counted(model, few) | _costly(model, few, with_rank=False)
    return {name: statistics[name] for name in FOLLOWED}


def _costly(model: SequenceModel, tokens: Int64[Tensor, "b t"], with_rank: bool) -> dict[str, Any]:
    variances, ranks = [], []
    with own_forms(model):
        for mixer, projected in _inputs_of(model, tokens):
            scores = mixer.design.scores(projected)
            variances.append(scores[..., _below(scores)].var().item())
            if with_rank:
                alpha, eta, _ = mixer.design.coefficients(projected)
                ranks.append(_effective_rank(alpha[:2] / eta[:2, ..., None]))
    rank = {"effective_rank": _finite_mean(ranks)} if with_rank else {}
    return {"score_variance": _finite_mean(variances), **rank}


def _below(alpha: Float[Tensor, "b h i j"]) -> Bool[Tensor, "i j"]:
    """Where j <= i."""
    rows, columns = alpha.shape[-2:]
    below = torch.ones(rows, rows, dtype=torch.bool, device=alpha.device).tril()
    return below.repeat_interleave(columns // rows, dim=-1)


def _effective_rank(weights: Float[Tensor, "b h i j"]) -> float:
    """Mean over sequences and heads. Roy and Vetterli 2007."""
    if not weights.isfinite().all():
        return math.nan
    values = torch.linalg.svdvals(weights)
    share = values / values.sum(-1, keepdim=True).clamp(min=1e-300)
    return torch.special.entr(share).sum(-1).exp().mean().item()


def _finite_mean(values: list[float]) -> float | None:
    mean = sum(values) / len(values)
    return mean if math.isfinite(mean) else None


@contextlib.contextmanager
def own_forms(model: SequenceModel) -> Iterator[None]:
    """Keep auto from using kernels, which may need another precision or device. Restores
    `form_used`."""
    mixers = mixers_of(model)
    before = [(mixer.may_use_adapters, mixer.form_used) for mixer in mixers]
    for mixer in mixers:
        mixer.may_use_adapters = False
    try:
        yield
    finally:
        for mixer, (may, used) in zip(mixers, before, strict=True):
            mixer.may_use_adapters, mixer.form_used = may, used


def layers_of(model: SequenceModel, tokens: Int64[Tensor, "b t"]) -> Iterator[Coefficients]:
    """The coefficients of each layer that has any."""
    for mixer, projected in _inputs_of(model, tokens):
        yield mixer.design.coefficients(projected)


def _inputs_of(
    model: SequenceModel, tokens: Int64[Tensor, "b t"]
) -> Iterator[tuple[SequenceMixer, Projected]]:
    x = model.embed(tokens)
    for block in blocks_of(model):
        if isinstance(block.mixer, SequenceMixer):
            yield block.mixer, block.mixer.projected(block.norm(x))
        x = block(x)


def _count(
    alpha: Float[Tensor, "b h i j"],
    eta: Float[Tensor, "b h i"],
    guarded: Bool[Tensor, "b h i"],
) -> Counts:
    """Count in blocks of rows, each up to its last column: the rest is above the diagonal."""
    names = ("near_zero", "near_one", "near_zero_raw", "near_one_raw", "near_zero_relative",
             "entropy", "zeros")  # fmt: skip
    per_row: dict[str, list[Tensor]] = {name: [] for name in names}
    length = alpha.shape[-2]
    repeats = alpha.shape[-1] // length
    for start in range(0, length, BLOCK_ROWS):
        end = min(start + BLOCK_ROWS, length)
        block = alpha[:, :, start:end, : repeats * end]
        above = repeats * torch.arange(end - start - 1, -1, -1, device=alpha.device)
        weight = block / eta[:, :, start:end, None]
        per_row["near_one"].append(_rows((weight >= NEAR_ONE) & (weight <= 1)))
        per_row["near_one_raw"].append(_rows((block >= NEAR_ONE) & (block <= 1)))
        size = block.abs()
        step = repeats * torch.arange(start + 1, end + 1, device=alpha.device).unsqueeze(-1)
        per_row["near_zero"].append(_rows(weight.abs_() <= NEAR_ZERO) - above)
        relative = _rows(weight <= FAR_BELOW_UNIFORM / step) - above
        per_row["near_zero_relative"].append(relative)
        per_row["entropy"].append(_entropy(size, step))
        per_row["near_zero_raw"].append(_rows(size <= NEAR_ZERO) - above)
        per_row["zeros"].append(_rows(size <= ZERO) - above)
    rows = {name: torch.cat(parts, dim=-1) for name, parts in per_row.items()}
    zeros = rows.pop("zeros")
    return Counts(
        **{name: number.sum((0, 2)) for name, number in rows.items()},
        guarded=guarded.sum((0, 2)),
        zeros=zeros.sum(0),
        most_zeros=zeros.amax((0, 2)),
        pairs=torch.full_like(
            zeros[0, :, 0], alpha.shape[0] * repeats * length * (length + 1) // 2
        ),
    )


def _entropy(size: Float[Tensor, "b h i j"], step: Tensor) -> Float[Tensor, "b h i"]:
    """Entropy of each row as a share of its maximum, log i; 0 for rows with at most one key."""
    share = size / size.sum(-1, keepdim=True).clamp(min=1e-300)
    return torch.special.entr(share).sum(-1) / step.squeeze(-1).log().clamp(min=1e-9)


def _rows(condition: Bool[Tensor, "b h i j"]) -> Int64[Tensor, "b h i"]:
    """The number of true entries in each row. A sum as int64 would convert all entries first."""
    return condition.sum(-1, dtype=torch.int32).long()


def _summary(counts: dict[str, Tensor], rows: int, batch: int) -> dict[str, Any]:
    """Counts (layer, head, ...) as shares: overall, and as nested lists per layer and head."""
    n_heads, pairs = counts["near_zero"].numel(), counts["pairs"]
    zeros = counts["zeros"].double()
    overall: dict[str, Any] = {"sequences": batch}
    per_head: dict[str, Any] = {}
    for name in ("near_zero", "near_one", "near_zero_raw", "near_one_raw", "near_zero_relative"):
        overall[name] = counts[name].sum().item() / pairs.sum().item()
        per_head[name] = (counts[name].double() / pairs).tolist()
    for suffix in ("", "_raw"):
        one, zero = counts["near_one" + suffix], counts["near_zero" + suffix]
        overall["ratio" + suffix] = _ratio(one.sum(), zero.sum())
        per_head["ratio" + suffix] = [
            [_ratio(*pair) for pair in zip(*layer, strict=True)]
            for layer in zip(one, zero, strict=True)
        ]
    entropy = counts["entropy"] / max(1, rows - batch)  # a first row has none
    overall["entropy"] = _finite_mean([entropy.mean().item()])
    per_head["entropy"] = [[_finite_mean([x]) for x in layer] for layer in entropy.tolist()]
    overall["guarded_rows"] = counts["guarded"].sum().item() / (rows * n_heads)
    per_head["guarded_rows"] = (counts["guarded"].double() / rows).tolist()
    overall["zeros_per_index"] = [
        round(x, 4) for x in (zeros.flatten(0, 1).mean(0) / batch).tolist()
    ]
    per_head["zeros_per_index"] = [
        [[round(x, 4) for x in head] for head in layer] for layer in (zeros / batch).tolist()
    ]
    overall["most_zeros"] = counts["most_zeros"].max().item()
    per_head["most_zeros"] = counts["most_zeros"].tolist()
    return overall | {"per_head": per_head}


def _ratio(one: Tensor, zero: Tensor) -> float | None:
    return one.item() / zero.item() if zero.item() else None
