"""Language: principle 5 on text, and what breaking one of all principles costs."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from coefdyn.paper.looks import SCALINGS
from coefdyn.paper.points import one_each
from coefdyn.plot.style import BLUE, GREEN, GREY, ORANGE, PAGE, PINK, RED, SKY, paper_style
from coefdyn.results.claim import Claim, Judgement, Tables, judged, points_of, value_of
from coefdyn.results.experiment import Experiment

WIKITEXT, ALL = "principle5_wikitext", "all_principles_lm"
SMALL_GAP, PAR = 0.1, 0.02  # of perplexities
PERPLEXITY = "test/perplexity"


@dataclass(frozen=True)
class Look:
    label: str  # under its bar; its first two lines name its curve
    colour: str
    dashed: bool = False


def _scaled(name: str, scaling: str, paper: float) -> Look:
    """`paper`: the perplexity that the paper has."""
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
    """Perplexities as bars, and how the losses came down."""
    points, curves, looks = tables[stem], tables[f"{stem}_curves"], LOOKS[stem]
    with paper_style():
        figure = Figure(figsize=(PAGE, 2.9), layout="constrained")
        bars, losses = figure.subplots(1, 2, width_ratios=[1.25, 1])
        _draw_bars(bars, one_each(points, "model")[PERPLEXITY], looks)
        for model, look in looks.items():
            rows = curves[curves["model"] == model].groupby("step")["train/loss"].mean()
            style = "--" if look.dashed else "-"
            name = " ".join(look.label.split("\n")[:2])
            losses.plot(rows.index, rows, style, color=look.colour, label=name)
        losses.set_xlabel("training step")
        losses.set_ylabel("training loss (nats per token)")
        losses.legend(fontsize=6.5)
    return figure


def _draw_bars(axes: Axes, perplexity: "pd.Series[float]", looks: Mapping[str, Look]) -> None:
    for place, (model, look) in enumerate(looks.items()):
        top = perplexity.get(model)
        if top is None or top != top:
            axes.annotate("no run" if top is None else "diverged", (place, 0), ha="center",
                          va="bottom", rotation=90, fontsize=7)  # fmt: skip
            continue
        axes.bar(place, top, 0.7, color=look.colour, hatch="///" if look.dashed else None,
                 edgecolor="white", linewidth=0.5)  # fmt: skip
        axes.annotate(f"{top:.1f}", (place, top), ha="center", va="bottom", fontsize=7)
    axes.set_xticks(range(len(looks)), [look.label for look in looks.values()], fontsize=6.5)
    axes.set_ylabel("test perplexity")
    axes.margins(y=0.15)


def _gap(tables: Tables, model: str, other: str) -> float:
    one, base = (value_of(tables, WIKITEXT, PERPLEXITY, model=name) for name in (model, other))
    return one / base - 1


def _small_gap(tables: Tables) -> Judgement:
    gaps = {
        "Mamba-2": _gap(tables, "mamba2_unscaled", "mamba2_inverse_sqrt"),
        "softmax attention": _gap(tables, "softmax_attention_unscaled", "softmax_attention"),
    }
    texts = ", ".join(f"{family} {gap:+.1%}" for family, gap in gaps.items())
    holds = all(0 < gap < SMALL_GAP for gap in gaps.values())
    return judged(holds, f"b = 1 against 1/sqrt(n): {texts}")


def _on_par(tables: Tables) -> Judgement:
    gap = _gap(tables, "mamba2_inverse_sqrt", "mamba2")
    return judged(abs(gap) < PAR, f"1/sqrt(n) against Delta: {gap:+.1%}")


def _each_principle_counts(tables: Tables) -> Judgement:
    """P1 is about cost, not about quality."""
    whole = value_of(tables, ALL, PERPLEXITY, model="all_principles")
    worse: dict[str, float | None] = {}
    for principle in range(1, 7):
        model = f"all_but_p{principle}"
        points = points_of(tables, ALL, model=model)
        diverged = points["diverged"].sum() == points["runs"].sum()
        worse[f"P{principle}"] = (
            None if diverged else value_of(tables, ALL, PERPLEXITY, model=model) / whole - 1
        )
    texts = ", ".join(
        f"{name} {'diverged' if gap is None else f'{gap:+.1%}'}" for name, gap in worse.items()
    )
    holds = all(gap is None or gap > PAR for name, gap in worse.items() if name != "P1")
    return judged(holds, f"perplexity against {whole:.0f} with none broken: {texts}")


EXPERIMENTS = (
    Experiment(
        WIKITEXT,
        caption="Principle 5 on language. Left: test perplexity of Mamba-2 and softmax attention "
        "(hatched) under different b_j. The paper's numbers are of WikiText-103 at its size; a "
        "smaller scale on WikiText-2 can be compared with them in its order only. Right: the "
        "training loss.",
        draw=partial(draw, WIKITEXT),
        needs=(f"{WIKITEXT}_curves",),
        claims=(
            Claim(
                "P5 language, gap",
                "On WikiText, b = 1 has a slightly larger perplexity than b = 1/sqrt(n).",
                f"a gap below 0 or above {SMALL_GAP:.0%}, for Mamba-2 or softmax attention",
                (WIKITEXT,),
                _small_gap,
            ),
            Claim(
                "P5 language, Delta",
                "On WikiText, Mamba-2 with b = 1/sqrt(n) is on par with b = Delta.",
                f"perplexities more than {PAR:.0%} apart",
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
        "1/sqrt(n), P6 A grows and eta does not. Left: test perplexity. Right: the training loss.",
        draw=partial(draw, ALL),
        needs=(f"{ALL}_curves",),
        claims=(
            Claim(
                "All principles, language",
                "On WikiText, a design that breaks one of P2 to P6 has a larger perplexity than "
                "one that breaks none. (Ours, not the paper's.)",
                f"one that is less than {PAR:.0%} worse",
                (ALL,),
                _each_principle_counts,
            ),
        ),
    ),
)
