"""A design in one panel: coefficients, readout, spectrum, variance and growth."""

import math
from collections.abc import Mapping
from itertools import islice

import torch
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from torch import Tensor

from coefdyn.config.build import build_model
from coefdyn.config.compose import Config
from coefdyn.config.pattern import layers_of
from coefdyn.errors import ConfigError
from coefdyn.mixer.slots.readout import Readout
from coefdyn.model.coefficient_statistics import layers_of as layers_of_model
from coefdyn.plot.style import BLUE, GREY, PAGE, RED, paper_style
from coefdyn.principles.check import EPS, Report
from coefdyn.principles.measure import (
    Trend,
    coefficient_growth,
    mixer_of,
    normalized_coefficients,
    random_input,
    score_variance,
    spectrum,
)

COLOURS = {"pass": "#009E73", "warn": "#B8860B", "break": "#D55E00"}
STEPS = 32


def picture(
    config: Config, reports: Mapping[str, Report], tokens: list[int] | None = None
) -> Figure:
    """Draw a design's panels; of a hybrid, those of each of its designs. `tokens` replace random
    input in the panel of coefficients."""
    model = config.settings.model
    head = model.n_state // model.n_heads
    layers = layers_of(config)
    names = [name for name, _ in layers]
    with paper_style():
        figure = Figure(figsize=(PAGE * 1.15, 5.2 * len(reports)), layout="constrained")
        parts = figure.subfigures(len(reports), 1, squeeze=False)[:, 0]
        for part, (name, report) in zip(parts, reports.items(), strict=True):
            layer = names.index(name) if len(reports) > 1 else 0
            weights = weights_of(config, layers[layer][1], layer, head, tokens)
            _draw_design(part, layers[layer][1], report, weights, head)
            if len(reports) > 1:
                part.suptitle(name.replace("_", " "))
    return figure


def _draw_design(
    figure: SubFigure, config: Config, report: Report, weights: Float[Tensor, "i j"], head: int
) -> None:
    axes = figure.subplots(2, 3)
    _coefficients(axes[0, 0], weights)
    _readout(axes[0, 1], mixer_of(config, head).design.readout)
    _spectrum(axes[0, 2], spectrum(config, head))
    _trend(axes[1, 0], score_variance(config), "head dimension $n/H$",
           "variance of $q_i \\cdot b_i k_i$", limit=1.0)  # fmt: skip
    _trend(axes[1, 1], coefficient_growth(config, head), "length $L$",
           r"largest $|\alpha_{ij}/\eta_i|$ of a row")  # fmt: skip
    _verdicts(axes[1, 2], report)


@torch.no_grad()
def weights_of(
    config: Config, design: Config, layer: int, head: int, tokens: list[int] | None
) -> Float[Tensor, "i j"]:
    """alpha/eta of the first head at initial weights: on random input, or on tokens in `layer`,
    whose design is `design`."""
    if tokens is None:
        mixer = mixer_of(design, head)
        return normalized_coefficients(mixer, random_input(mixer, 1, STEPS))[0, 0]
    model = build_model(config).double().eval()
    size = model.embedding.num_embeddings
    if not tokens or not 0 <= min(tokens) <= max(tokens) < size:
        raise ConfigError(f"tokens={tokens} must be a list of whole numbers from 0 to {size - 1}")
    (found,) = islice(layers_of_model(model, torch.tensor([tokens])), layer, layer + 1)
    return (found.alpha / found.eta.unsqueeze(-1))[0, 0]


def _coefficients(axes: Axes, weights: Float[Tensor, "i j"]) -> None:
    size = weights.nan_to_num(0, 0, 0).abs().max().item() or 1.0
    rows, columns = weights.shape  # where A_t repeats, a step has several columns
    above = torch.ones(rows, rows).triu(1).bool().repeat_interleave(columns // rows, dim=1)
    causal = weights.masked_fill(above, math.nan)
    image = axes.imshow(causal.numpy(), cmap="RdBu_r", vmin=-size, vmax=size, aspect=columns / rows)
    axes.figure.colorbar(image, ax=axes, shrink=0.8)
    axes.set(title=r"$\alpha_{ij}/\eta_i$", xlabel="$j$", ylabel="$i$")


def _readout(axes: Axes, readout: Readout) -> None:
    kernel = readout.feature_map
    function = readout if kernel is None else kernel
    s = torch.linspace(-8, 4, 400, dtype=torch.float64)
    axes.plot(s, function(s), color=BLUE)
    axes.axhline(0, color="0.7", linewidth=0.6)
    title = r"$\phi(s)$, near zero in red" if kernel is None else r"$\psi(s)$ of a kernel"
    if kernel is None:
        for start, end in readout.near_zero_set(EPS):
            left, right = max(start, -8.0), min(end, 4.0)
            axes.hlines(0, left, max(right, left + 0.06), color=RED, linewidth=4)
    axes.set(title=title, xlabel="$s$", ylim=(-2, 4))


def _spectrum(axes: Axes, eigenvalues: Tensor) -> None:
    circle = torch.linspace(0, 2 * math.pi, 200)
    axes.plot(circle.cos(), circle.sin(), color=GREY, linewidth=0.8)
    axes.plot(eigenvalues.real, eigenvalues.imag, "o", color=BLUE, markersize=2, alpha=0.4)
    axes.set(title="eigenvalues of $A_t$", xlabel="real", ylabel="imaginary", aspect="equal")


def _trend(axes: Axes, trend: Trend, x: str, y: str, limit: float | None = None) -> None:
    finite = [(size, value) for size, value in zip(trend.sizes, trend.values, strict=True)
              if 0 < value < 1e300]  # fmt: skip
    if finite:
        axes.plot(*zip(*finite, strict=True), "o-", color=BLUE)
    if len(finite) < len(trend.sizes):
        axes.annotate(
            "overflows beyond", (0.95, 0.9), xycoords="axes fraction", ha="right", color=RED
        )
    if limit is not None:
        axes.axhline(limit, color=GREY, linestyle=":")
    axes.set(xlabel=x, title=y, xscale="log", yscale="log")
    axes.set_xticks(trend.sizes, [str(size) for size in trend.sizes])
    axes.minorticks_off()
    if finite:
        low, high = min(v for _, v in finite), max(v for _, v in finite)
        axes.set_ylim(min(low, limit or low) / 10, max(high, limit or high) * 10)


def _verdicts(axes: Axes, report: Report) -> None:
    axes.axis("off")
    for place, line in enumerate(report.lines):
        y = 1 - (place + 0.5) / len(report.lines)
        axes.text(0, y, line.principle, va="center", fontsize=8)
        axes.text(1, y, line.verdict, va="center", ha="right", fontsize=8,
                  color=COLOURS[line.verdict], fontweight="bold")  # fmt: skip
