"""Which reading of the paper changes which verdict: claims are judged again under each reading.

A reading is one way to settle a choice that the paper leaves open (conf/reading).
"""

from collections.abc import Iterator

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from coefdyn.errors import ConfigError
from coefdyn.paper import principle2, principle3, principle6
from coefdyn.paper.looks import VERDICTS
from coefdyn.plot.style import PAGE, paper_style
from coefdyn.results.claim import Claim, Tables
from coefdyn.results.experiment import Experiment
from coefdyn.results.tables import SLOTS

STEM = "open_choices"
AS_BUILT, RAW = "as_built", "raw_coefficients"
DESIGN = ["task", *SLOTS]  # columns that tell designs apart under any reading
COLUMNS = ["reading", "claim", "verdict", "statistic"]


def _claims() -> Iterator[tuple[str, Claim]]:
    """The claims whose points this experiment has, each with the stem of its own experiment."""
    for module in (principle2, principle3, principle6):
        for experiment in module.EXPERIMENTS:
            for claim in experiment.claims:
                if claim.name.startswith(("P2 memorization", "P3 without")) or (
                    experiment.stem == principle6.NORMED
                ):
                    yield experiment.stem, claim


def under(tables: Tables, reading: str, stem: str) -> dict[str, pd.DataFrame]:
    """The tables of an experiment as if it had been run under a reading.

    Designs that the reading does not change are taken as built. RAW needs no runs: it reads other
    columns of the same runs.
    """
    changed = {}
    for name in ("", "_runs"):
        rows = tables[f"{STEM}{name}"]
        rows = rows[rows["experiment"] == stem]
        built, read = rows[rows["reading"] == AS_BUILT], rows[rows["reading"] == reading]
        touched = set(_designs(read))
        untouched = [design not in touched for design in _designs(built)]
        joined = pd.concat([read, built[untouched]], ignore_index=True)
        if reading == RAW:
            names = ("near_zero", "near_one", "ratio")
            joined = joined.assign(**{column: joined[f"{column}_raw"] for column in names})
        changed[f"{stem}{name}"] = joined
    return changed


def _designs(rows: pd.DataFrame) -> list[tuple[object, ...]]:
    return list(rows[DESIGN].itertuples(index=False, name=None))


def _is_read_so(points: pd.DataFrame, claim: Claim, reading: str) -> bool:
    """Whether a reading changes all designs that a claim is about."""
    selections = [
        rows
        for where in claim.reads
        for rows in [points[(points[list(where)] == pd.Series(where)).all(axis="columns")]]
    ]
    rows = pd.concat(selections)
    built, read = rows[rows["reading"] == AS_BUILT], rows[rows["reading"] == reading]
    return bool(len(read)) and set(_designs(built)) <= set(_designs(read))


def verdicts(tables: Tables) -> pd.DataFrame:
    """A row per reading and claim, with the verdict."""
    points = tables[STEM]
    if not {"reading", "experiment"} <= set(points.columns):
        raise ConfigError("it has one reading, or one experiment, and compares nothing")
    if AS_BUILT not in set(points["reading"]):
        raise ConfigError(f"it lacks reading={AS_BUILT}, which the others are compared with")
    rows = []
    for reading in [*dict.fromkeys(points["reading"]), RAW]:
        for stem, claim in _claims():
            own = points[points["experiment"] == stem]
            overrides = (f"reading={reading}",) if _is_read_so(own, claim, reading) else ()
            judgement = claim.judge(under(tables, reading, stem), *overrides)
            rows.append([reading, claim.name, judgement.verdict, judgement.statistic])
    return pd.DataFrame(rows, columns=COLUMNS)


def draw(tables: Tables) -> Figure:
    """A square per reading and claim. A frame: the verdict differs from the one as built."""
    grid = verdicts(tables).pivot_table("verdict", "claim", "reading", "first", sort=False)
    with paper_style():
        height = 1.9 + 0.27 * len(grid)
        figure = Figure(figsize=(PAGE, height), layout="constrained")
        axes = figure.subplots()
        for y, (_, row) in enumerate(grid.iterrows()):
            for x, verdict in enumerate(row):
                word, colour = VERDICTS[verdict]
                differs = verdict != row[AS_BUILT] and verdict != "not enough runs"
                edge = "black" if differs else "none"
                axes.add_patch(Rectangle((x - 0.46, y - 0.42), 0.92, 0.84, facecolor=colour,
                                         edgecolor=edge, linewidth=1.6))  # fmt: skip
                axes.annotate(word, (x, y), ha="center", va="center", fontsize=6)
        names = [str(name).replace("_", "\n") for name in grid.columns]
        axes.set_xticks(range(len(names)), names, fontsize=7)
        axes.set_yticks(range(len(grid)), [str(claim) for claim in grid.index], fontsize=7)
        axes.set(xlim=(-0.5, len(names) - 0.5), ylim=(len(grid) - 0.5, -0.5))
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
    return figure


EXPERIMENTS = (
    Experiment(
        STEM,
        caption="Which reading of the paper changes which verdict. A column per choice that the "
        "paper leaves open, one changed at a time (conf/reading); a frame marks a verdict that is "
        "another than as built. At lite, principle 6 is left out, and noisy recall has 64 "
        "steps and one learning rate, 3e-3. ShortConv on queries and keys "
        "alone is not among them: these designs have none.",
        draw=draw,
    ),
)
