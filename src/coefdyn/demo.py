"""The figure, conclusion and page of `coefdyn demo`, from the table of its runs."""

import base64
import io
from collections.abc import Sequence
from html import escape
from pathlib import Path
from string import Template

import pandas as pd
from matplotlib.figure import Figure

from coefdyn.paper.looks import NEAR_ZERO, readout_look
from coefdyn.plot.style import COLUMN, accuracy_axis, legend_below, paper_style, show_seeds
from coefdyn.results.tables import best_runs
from coefdyn.results.variance import Values, reach_of, weighted_sum

TEMPLATE = Path(__file__).with_name("demo.html")
READOUTS = ("exp", "softplus", "relu", "identity")
GRID = ("task=memorization", f"model/readout={','.join(READOUTS)}", "seed=0,1,2,3,4",
        "optimizer.lr=3e-3,1e-2")  # fmt: skip
LEAST = 0.02  # smaller differences in accuracy do not count


def best(runs: pd.DataFrame) -> pd.DataFrame:
    """The rows with the best learning rate of each readout and seed. `runs` has a row per run."""
    return pd.concat([best_runs(group) for _, group in runs.groupby("readout", sort=False)])


def figure(runs: pd.DataFrame) -> Figure:
    """Accuracy against the share of coefficients near zero: a dot per seed, a mark per readout."""
    with paper_style():
        drawing = Figure(figsize=(COLUMN * 1.4, 2.9), layout="constrained")
        axes = drawing.subplots()
        for name, group in best(runs).groupby("readout", sort=False):
            label, colour = readout_look(str(name))
            rows = group.dropna(subset=["near_zero"])  # a run that diverged has no coefficients
            x, y = rows["near_zero"].to_numpy(float), rows["accuracy"].to_numpy(float)
            show_seeds(axes, x, y, (reach_of(x), reach_of(y)), colour)
            if len(rows):
                axes.plot(x.mean(), y.mean(), "o", color=colour, label=label, markersize=6)
        axes.set(xlabel=NEAR_ZERO, xlim=(-0.03, 1.03))
        accuracy_axis(axes, float(runs["chance"].iloc[0]))
        legend_below(drawing, columns=len(READOUTS))
    return drawing


def conclusion(runs: pd.DataFrame) -> list[str]:
    """Sentences that say what these numbers show."""
    best_rows = best(runs)
    values = {
        str(name): group["accuracy"].to_numpy(float) for name, group in best_rows.groupby("readout")
    }
    rivals = [name for name in READOUTS if name in values and name != "identity"]
    sentences = [_compared("identity", name, values) for name in rivals if "identity" in values]
    means = best_rows.groupby("readout")[["near_zero", "accuracy"]].mean()
    fewest, worst = means["near_zero"].idxmin(), means["accuracy"].idxmin()
    most, top = means["near_zero"].idxmax(), means["accuracy"].idxmax()
    sentences.append(
        f"{_word(fewest)} has the fewest coefficients near zero and {_word(worst)} the lowest "
        f"accuracy; {_word(most)} has the most near zero and {_word(top)} the highest accuracy."
    )
    if fewest == worst and most == top:
        sentences.append("That is what principle 2 expects.")
    elif fewest == worst:
        sentences.append(
            "The lower end is what principle 2 expects. The upper end is not: more zeros than "
            "needed do not help here."
        )
    else:
        sentences.append("Principle 2 expects the same readout at both lower ends: not so here.")
    return sentences


def _compared(one: str, other: str, values: dict[str, Values]) -> str:
    """A sentence on the difference of two mean accuracies, with Welch's 95 % interval."""
    a, b = values[other], values[one]
    gap = float(a.mean() - b.mean())
    if min(len(a), len(b)) < 2:
        return f"{_word(other)} - {_word(one)}: {gap:+.3f}, without an interval."
    low, high = weighted_sum([a, b], [1.0, -1.0], None, 0).interval(0.95)
    words = f"{_word(other)} - {_word(one)}: {gap:+.3f} (95 % interval {low:+.3f} to {high:+.3f})"
    if low > LEAST:
        return f"{words}: better."
    return f"{words}: worse." if high < -LEAST else f"{words}: cannot be told apart by these seeds."


def _word(name: object) -> str:
    return str(name).replace("_", " ")


def page(runs: pd.DataFrame, drawing: Figure) -> str:
    """One HTML file that needs no network: question, picture, conclusion, and a row per run."""
    buffer = io.BytesIO()
    drawing.savefig(buffer, format="png", dpi=200)
    picture = base64.b64encode(buffer.getvalue()).decode()
    return Template(TEMPLATE.read_text()).substitute(
        picture=picture,
        sentences="".join(f"<li>{escape(sentence)}</li>" for sentence in conclusion(runs)),
        runs=len(runs),
        seeds=runs["seed"].nunique(),
        scale=escape(str(runs["scale"].iloc[0])),
        rows="".join(_row(row) for row in runs.to_dict("records")),
    )


def _row(run: dict[str, object]) -> str:
    near = run["near_zero"]
    cells: Sequence[str] = [
        _word(run["readout"]),
        str(run["seed"]),
        f"{run['lr']:g}",
        f"{run['accuracy']:.3f}",
        "" if near is None or near != near else f"{near:.3f}",
        str(run["status"]),
        str(run["run_id"]),
    ]
    return "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>\n"
