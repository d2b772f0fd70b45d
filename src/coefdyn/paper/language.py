"""Language: principle 5 on text, and what it costs to break one principle at a time."""

from dataclasses import dataclass
from functools import partial

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from coefdyn.paper.looks import SCALINGS
from coefdyn.paper.points import one_each, seeds_of
from coefdyn.plot.style import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PAGE,
    PINK,
    RED,
    SKY,
    paper_style,
    show_seeds,
)
from coefdyn.principles.invariance import same_function
from coefdyn.results.claim import Claim, Effect, Region, Tables
from coefdyn.results.effects import contrast, runs_of
from coefdyn.results.experiment import Experiment
from coefdyn.results.variance import reach_of

WIKITEXT, ALL = "principle5_wikitext", "all_principles_lm"
SMALL_GAP, PAR, WORSE = (0.005, 0.06), 0.01, 0.02  # differences of log perplexity per word
PLACE = "Principle 5, the table of WikiText-103"
FAR = 3.0  # how many times the best perplexity is too far for a linear axis
PERPLEXITY = "test/perplexity_word"  # does not depend on the tokenizer


@dataclass(frozen=True)
class Look:
    label: str  # under the point; its first two lines also name the curve
    colour: str
    dashed: bool = False


def _scaled(name: str, scaling: str, paper: float) -> Look:
    """The look of a model under a scaling. `paper`: the perplexity that the paper reports."""
    words, colour = (SCALINGS | {"step_size": (r"$\Delta_j$", GREEN)})[scaling]
    return Look(f"{name}\n$b=$ {words}\npaper:\n{paper}", colour, dashed=name == "softmax")


LOOKS = {
    WIKITEXT: {
        "mamba2_unscaled": _scaled("Mamba-2", "one", 29.23),
        "mamba2_inverse_sqrt": _scaled("Mamba-2", "inverse_sqrt", 28.84),
        "mamba2": _scaled("Mamba-2", "step_size", 28.87),
        "softmax_attention_unscaled": _scaled("softmax", "one", 32.69),
        "softmax_attention": _scaled("softmax", "inverse_sqrt", 31.73),
    },
    ALL: {
        "all_principles": Look("breaks\nnone", GREY),
        "all_but_p1": Look("breaks\nP1", BLUE),
        "all_but_p2": Look("breaks\nP2", ORANGE),
        "all_but_p3": Look("breaks\nP3", GREEN),
        "all_but_p4": Look("breaks\nP4", PINK),
        "all_but_p5": Look("breaks\nP5", SKY),
        "all_but_p6": Look("breaks\nP6", RED),
    },
}


def draw(stem: str, tables: Tables) -> Figure:
    """Left, the test perplexity of every seed and their mean; right, training losses."""
    curves, looks = tables[f"{stem}_curves"], LOOKS[stem]
    with paper_style():
        figure = Figure(figsize=(PAGE, 2.9), layout="constrained")
        perplexities, losses = figure.subplots(1, 2, width_ratios=[1.25, 1])
        _draw_perplexities(perplexities, tables, stem)
        for model, look in looks.items():
            rows = curves[curves["model"] == model].groupby("step")["train/loss"].mean()
            style = "--" if look.dashed else "-"
            name = " ".join(look.label.split("\n")[:2])
            losses.plot(rows.index, rows, style, color=look.colour, label=name)
        losses.set_xlabel("training step")
        losses.set_ylabel("training loss (nats per token)")
        losses.legend(fontsize=6.5)
    return figure


def _draw_perplexities(axes: Axes, tables: Tables, stem: str) -> None:
    """No bars: from zero on, gaps of a percent could not be seen."""
    points, looks = one_each(tables[stem], "model"), LOOKS[stem]
    means = pd.to_numeric(points[PERPLEXITY]).reindex(list(looks))
    if means.max() > FAR * means.min():
        axes.set_yscale("log")
    for place, (model, look) in enumerate(looks.items()):
        mean = means[model]
        if mean != mean:
            word = "diverged" if model in points.index else "no run"
            axes.annotate(word, (place, 0.02), xycoords=("data", "axes fraction"), ha="center",
                          va="bottom", rotation=90, fontsize=7)  # fmt: skip
            continue
        axes.plot(place, mean, "D", color=look.colour, markersize=5,
                  markerfacecolor="white" if look.dashed else look.colour)  # fmt: skip
        seeds = seeds_of(tables, stem, points.loc[model].to_dict() | {"model": model}, PERPLEXITY)
        show_seeds(axes, place, seeds, (0.0, reach_of(seeds)), look.colour)
        axes.annotate(f"{mean:.1f}", (place, mean), (5, 0), textcoords="offset points",
                      va="center", fontsize=6.5)  # fmt: skip
    axes.set_xticks(range(len(looks)), [look.label for look in looks.values()], fontsize=6.5)
    axes.set_xlim(-0.5, len(looks) - 0.3)
    axes.set_ylabel("test perplexity per word")
    axes.margins(y=0.15)


def _gap(tables: Tables, stem: str, model: str, other: str, region: Region) -> Effect:
    """The log perplexity of a model minus that of another."""
    terms = [(1.0, stem, PERPLEXITY, {"model": model}), (-1.0, stem, PERPLEXITY, {"model": other})]
    name = f"log perplexity: {model} - {other}".replace("_", " ")
    return contrast(tables, name, terms, region, logarithm=True)


def _softmax_gap(tables: Tables) -> list[Effect]:
    models = ("softmax_attention_unscaled", "softmax_attention")
    return [_gap(tables, WIKITEXT, *models, Region(*SMALL_GAP))]


def _mamba_gap(tables: Tables) -> list[Effect]:
    models = ("mamba2_unscaled", "mamba2_inverse_sqrt")
    return [_gap(tables, WIKITEXT, *models, Region(*SMALL_GAP))]


def _one_mamba(*more: str) -> str | None:
    designs = [[f"model={name}", *more] for name in ("mamba2_unscaled", "mamba2_inverse_sqrt")]
    same, words = same_function(*designs)
    return words if same else None


def _on_par(tables: Tables) -> list[Effect]:
    return [_gap(tables, WIKITEXT, "mamba2_inverse_sqrt", "mamba2", Region(-PAR, PAR))]


def _each_principle_counts(tables: Tables) -> list[Effect]:
    """P2 to P6: P1 is about cost, not quality. A design whose seeds all diverge counts as worse."""
    effects = []
    for principle in range(2, 7):
        model = f"all_but_p{principle}"
        rows = runs_of(tables, ALL, {"model": model})
        if len(rows) and (rows["status"] == "diverged").all():
            region, name = Region(WORSE), f"{model} diverged in all {len(rows)} seeds"
            effects.append(Effect(name, 1.0, region, lambda _: (1.0, 1.0), len(rows)))
        else:
            effects.append(_gap(tables, ALL, model, "all_principles", Region(WORSE)))
    return effects


EXPERIMENTS = (
    Experiment(
        WIKITEXT,
        caption="Principle 5 on language. Left: test perplexity per word of Mamba-2 and softmax "
        "attention (hollow) under different b_j, with a dot per seed and the interval of the mean. "
        "The paper's numbers are per token of WikiText-103 at its size; a smaller scale on "
        "WikiText-2 can be compared with them in its order only. Right: the training loss.",
        draw=partial(draw, WIKITEXT),
        needs=(f"{WIKITEXT}_curves",),
        claims=(
            Claim(
                "P5 language, softmax attention",
                "On WikiText, b = 1 has a slightly larger perplexity than b = 1/sqrt(n).",
                PLACE,
                (WIKITEXT,),
                _softmax_gap,
            ),
            Claim(
                "P5 language, Mamba-2",
                "On WikiText, Mamba-2 with b = 1 has a slightly larger perplexity than with "
                "b = 1/sqrt(n).",
                PLACE,
                (WIKITEXT,),
                _mamba_gap,
                invariance=_one_mamba,
            ),
            Claim(
                "P5 language, Delta",
                "On WikiText, Mamba-2 with b = 1/sqrt(n) is on par with b = Delta.",
                PLACE,
                (WIKITEXT,),
                _on_par,
            ),
        ),
    ),
    Experiment(
        ALL,
        caption="All principles on language; not in the paper. A design that breaks no principle "
        "(A decays and reflects, b = z/sqrt(n), identity readout, eta = 1, no norm after the "
        "sequence model) against designs that break one each: P1 no finite recurrent form "
        "(softplus, eta = sum), P2 nothing suppresses a key by its input (A = cI, b = 1/sqrt(n)), "
        "P3 no position (A = I, no convolution), P4 A only scales all channels alike, P5 no "
        "1/sqrt(n), P6 A grows and eta does not. Left: test perplexity per word. Right: the "
        "training loss.",
        draw=partial(draw, ALL),
        needs=(f"{ALL}_curves",),
        claims=(
            Claim(
                "All principles, language",
                "On WikiText, a design that breaks one of P2 to P6 has a larger perplexity than "
                "one that breaks none. (Ours, not the paper's.)",
                "not in the paper",
                (ALL,),
                _each_principle_counts,
            ),
        ),
    ),
)
