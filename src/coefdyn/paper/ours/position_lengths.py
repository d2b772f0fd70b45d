"""Position schemes: what knows order without an embedding is an A_t; and how far each reaches."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from coefdyn.paper.points import one_each
from coefdyn.plot.squares import squares
from coefdyn.plot.style import ACCURACY, PAGE, paper_style, task_name
from coefdyn.results.claim import SOLVED, Claim, Effect, NotEnoughRunsError, Region, Tables
from coefdyn.results.effects import contrast, mean
from coefdyn.results.experiment import Experiment

STEM = "position_lengths"
LONGER = 4  # times the trained length
TASKS = ("noisy_recall", "copy")
Scheme = tuple[str, str]  # evolution and position
EMBEDDINGS: Mapping[Scheme, str] = {
    ("identity", "learned"): "learned",
    ("identity", "sinusoidal"): "sinusoidal",
}
FADING: Mapping[Scheme, str] = {  # what is far away counts less
    ("constant", "none"): "cI",
    ("alibi", "none"): "ALiBi",
    ("forget", "none"): "FoX",
    ("diagonal_gla", "none"): "Wall",
    ("forget_householder", "none"): "PaTH-FoX",
}
TURNING: Mapping[Scheme, str] = {
    ("rotary", "none"): "rotary",
    ("householder_free_learned", "none"): "PaTH",
}
RELATIVE = {**FADING, **TURNING}
SCHEMES = {("identity", "none"): "none", **EMBEDDINGS, **TURNING, **FADING}


def draw(tables: Tables) -> Figure:
    """A square per scheme: accuracy by length, and on the longest test by the gap to the key."""
    points = tables[STEM]
    panels: dict[str, pd.DataFrame] = {}
    for task in (task for task in TASKS if task in set(points["task"])):
        rows = one_each(points[points["task"] == task], "evolution", "position")
        lengths = _columns(rows, "accuracy@")
        trained = {int(rows["seq_len"].iloc[0]): "accuracy"}
        panels[f"{task_name(task)}, by length"] = _squares_of(rows, trained | lengths)
        if gaps := _columns(rows, "accuracy@gap"):
            panels[f"{task_name(task)} at {max(lengths)}, by gap"] = _squares_of(rows, gaps)
    with paper_style():
        figure = Figure(figsize=(PAGE, 3.2), layout="constrained")
        widths = [len(values.columns) for values in panels.values()]
        axes = figure.subplots(1, len(panels), sharey=True, width_ratios=widths, squeeze=False)[0]
        for one, (title, values) in zip(axes, panels.items(), strict=True):
            picture = squares(one, values, font_size=5.5)
            one.set_title(title)
        figure.colorbar(picture, ax=list(axes), label=ACCURACY, fraction=0.03)
    return figure


def _columns(rows: pd.DataFrame, start: str) -> dict[int, str]:
    """The columns with a name that is `start` and a number, by the number."""
    found = {name: name.removeprefix(start) for name in rows if name.startswith(start)}
    numbers = {int(rest): name for name, rest in found.items() if rest.isdigit()}
    return {n: numbers[n] for n in sorted(numbers) if rows[numbers[n]].notna().any()}


def _squares_of(rows: pd.DataFrame, columns: Mapping[int, str]) -> pd.DataFrame:
    schemes = [scheme for scheme in SCHEMES if scheme in rows.index]
    values = np.array(
        [[rows.loc[scheme, column] for column in columns.values()] for scheme in schemes]
    )
    names = [SCHEMES[scheme].replace("cI", "$cI$") for scheme in schemes]
    return pd.DataFrame(values, names, [str(n) for n in columns])


PLACE = "ours: Principle 3, with the schemes of today"


def _where(task: str, scheme: Scheme) -> dict[str, object]:
    return {"task": task, "evolution": scheme[0], "position": scheme[1]}


def _points(task: str, *schemes: Mapping[Scheme, str]) -> tuple[dict[str, object], ...]:
    return tuple(_where(task, scheme) for group in schemes for scheme in group)


def _farthest(tables: Tables, task: str) -> str:
    """The column of the test at four times the length."""
    rows = tables.get(STEM)
    rows = None if rows is None else rows[rows["task"] == task]
    if rows is None or rows.empty:
        raise NotEnoughRunsError(f"no table of {STEM} with {task}")
    return f"accuracy@{LONGER * int(rows['seq_len'].iloc[0])}"


def _solves(tables: Tables) -> list[Effect]:
    return [
        mean(tables, name, STEM, _where("noisy_recall", scheme), Region(SOLVED))
        for scheme, name in RELATIVE.items()
    ]


def _lost(tables: Tables, schemes: Mapping[Scheme, str], region: Region) -> list[Effect]:
    """The accuracy that a scheme loses on sequences four times as long."""
    far = _farthest(tables, "noisy_recall")
    effects = []
    for scheme, name in schemes.items():
        where = _where("noisy_recall", scheme)
        terms = [(1.0, STEM, "accuracy", where), (-1.0, STEM, far, where)]
        effects.append(contrast(tables, f"{name}: accuracy lost", terms, region))
    return effects


def _copies(tables: Tables) -> list[Effect]:
    far = _farthest(tables, "copy")

    def terms(schemes: Sequence[Scheme], sign: float):  # type: ignore[no-untyped-def]
        return [(sign / len(schemes), STEM, far, _where("copy", scheme)) for scheme in schemes]

    both = [*terms(list(RELATIVE), 1.0), *terms(list(EMBEDDINGS), -1.0)]
    return [contrast(tables, "A_t - embeddings", both, Region(0.05))]


EXPERIMENTS = (
    Experiment(
        STEM,
        caption="Position schemes. Accuracy of softmax attention without positions, with an "
        "embedding, and with relative schemes, each of which is an A_t: at the trained length, at "
        "two and four times it, and there by the gap between a question and the last showing of "
        "its key (4: gaps of 4 to 7). Not in the paper.",
        draw=draw,
        claims=(
            Claim(
                "Position schemes solve",
                "Every relative position scheme, as an A_t alone, solves noisy recall.",
                PLACE,
                (STEM,),
                _solves,
                reads=_points("noisy_recall", RELATIVE),
            ),
            Claim(
                "Position lengths, kept",
                "On noisy recall four times as long, an A_t that fades loses 5 points at most.",
                PLACE,
                (STEM,),
                lambda tables: _lost(tables, FADING, Region(high=0.05)),
                reads=_points("noisy_recall", FADING),
            ),
            Claim(
                "Position lengths, lost",
                "On noisy recall four times as long, embeddings and rotary lose 10 points or more.",
                PLACE,
                (STEM,),
                lambda tables: _lost(
                    tables, {**EMBEDDINGS, ("rotary", "none"): "rotary"}, Region(0.1)
                ),
                reads=_points("noisy_recall", EMBEDDINGS, {("rotary", "none"): "rotary"}),
            ),
            Claim(
                "Position lengths, copying",
                "On copying four times as long, relative schemes are 5 points ahead of embeddings.",
                PLACE,
                (STEM,),
                _copies,
                reads=_points("copy", RELATIVE, EMBEDDINGS),
            ),
        ),
    ),
)
