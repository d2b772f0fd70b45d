"""State tracking: what a product of A_t can follow, in one layer.

To follow a word problem, A_t of a token g must act as a matrix rho(g) of the group. Each reflection
changes it by rank one, so that a token needs rank(I - rho(g)) of them: a transposition one, a
3-cycle two, a 5-cycle four. A rotation by an angle of the token needs none.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage

from coefdyn.paper.points import one_each, seeds_of
from coefdyn.plot.squares import squares
from coefdyn.plot.style import ACCURACY, PAGE, paper_style
from coefdyn.results.claim import SOLVED, Claim, Effect, NotEnoughRunsError, Region, Tables
from coefdyn.results.effects import mean, share_of_seeds
from coefdyn.results.experiment import Experiment

STEM = "state_tracking"
LONGER = 4  # times the trained length
TASKS = {
    "parity": "parity",
    "word_z60": "sum modulo 60",
    "word_s3": "permutations of 3",
    "word_s5": "permutations of 5",
}
EVOLUTIONS = {
    "scalar_mamba2": r"scalar in $(0,1)$",
    "signed_mamba2": r"scalar in $(-1,1)$",
    "diagonal_gla": r"diagonal in $(0,1)$",
    "signed_gla": r"diagonal in $(-1,1)$",
    "householder_key_positive": r"Householder, $\beta\leq 1$",
    "householder_key_learned": r"Householder, $\beta\leq 2$",
    "householder_product": "two Householder",
    "householder_product_four": "four Householder",
    "rotary": "constant rotation",
    "mamba3": "rotation by the token",
}
ONE_REFLECTION = ("signed_mamba2", "signed_gla", "householder_key_learned")  # or less
# What rank(I - rho(g)) allows for each task, and what it rules out.
ABLE: Mapping[str, Sequence[str]] = {
    "parity": ONE_REFLECTION,
    "word_z60": ("householder_product", "mamba3"),  # one of them is enough
    "word_s3": ("householder_product",),
    "word_s5": ("householder_product_four",),
}
UNABLE: Mapping[str, Sequence[str]] = {
    "parity": ("scalar_mamba2", "diagonal_gla", "householder_key_positive"),
    "word_z60": ONE_REFLECTION,
    "word_s3": ONE_REFLECTION,
    "word_s5": ("householder_key_learned", "householder_product"),
}
FAR = {task: ABLE[task] for task in ("word_s3", "word_s5")} | {
    "parity": ("householder_key_learned",)
}


def _length(points: pd.DataFrame) -> int:
    """The trained one."""
    return int(points["seq_len"].iloc[0])


def draw(tables: Tables) -> Figure:
    """A square per evolution, task and length: mean accuracy, and how many seeds solve it."""
    points = tables[STEM]
    names = [name for name in EVOLUTIONS if name in set(points["evolution"])]
    with paper_style():
        figure = Figure(figsize=(PAGE, 1.2 + 0.3 * len(names)), layout="constrained")
        panels = figure.subplots(1, len(TASKS), sharey=True)
        for axes, (task, title) in zip(panels, TASKS.items(), strict=True):
            picture = _draw_task(axes, tables, points[points["task"] == task], names)
            axes.set_title(title)
        figure.supxlabel("length of the test; trained at the first", fontsize=8)
        figure.colorbar(picture, ax=panels, label=ACCURACY, fraction=0.03)
    return figure


def _draw_task(axes: Axes, tables: Tables, points: pd.DataFrame, names: Sequence[str]) -> AxesImage:
    length, rows = _length(tables[STEM]), one_each(points, "evolution")
    columns = {length: "accuracy"} | {
        n: f"accuracy@{n}" for n in (2 * length, LONGER * length) if f"accuracy@{n}" in rows
    }
    means = rows.reindex(names)[list(columns.values())]
    solved = [
        [_solved(tables, rows, name, column) for column in columns.values()] for name in names
    ]
    means.index = pd.Index([EVOLUTIONS[name] for name in names])
    means.columns = pd.Index([str(n) for n in columns])
    return squares(axes, means, solved, font_size=5.5)


def _solved(tables: Tables, rows: pd.DataFrame, evolution: str, column: str) -> str:
    """How many of its seeds solve the task; nothing if it has one seed."""
    if evolution not in rows.index:
        return ""
    point = rows.loc[evolution].to_dict() | {"evolution": evolution}
    seeds = seeds_of(tables, STEM, point, column)
    return f"{(seeds >= SOLVED).sum()} of {len(seeds)}" if len(seeds) > 1 else ""


PLACE = "ours: Principle 4, on tasks that need it"
OFTEN = Region(0.5)  # share of seeds; eight of eight tell it
MISSED = Region(high=0.9)  # accuracy


def _where(task: str, evolution: str) -> dict[str, object]:
    return {"task": task, "evolution": evolution}


def _words(evolution: str) -> str:
    return evolution.replace("_", " ")


def _learned(task: str) -> Callable[[Tables], list[Effect]]:
    def effects(tables: Tables) -> list[Effect]:
        return [
            share_of_seeds(tables, f"solved by {_words(name)}", STEM, _where(task, name), SOLVED,
                           OFTEN)
            for name in ABLE[task]
        ]  # fmt: skip

    return effects


def _missed(task: str) -> Callable[[Tables], list[Effect]]:
    return lambda tables: [
        mean(tables, _words(name), STEM, _where(task, name), MISSED) for name in UNABLE[task]
    ]


def _at_last(tables: Tables) -> str:
    if STEM not in tables:
        raise NotEnoughRunsError(f"no table of {STEM}")
    return f"accuracy@{LONGER * _length(tables[STEM])}"


def _far(tables: Tables) -> list[Effect]:
    return [
        share_of_seeds(tables, f"{TASKS[task]} by {_words(name)}", STEM, _where(task, name), SOLVED,
                       OFTEN, _at_last(tables))
        for task, names in FAR.items()
        for name in names
    ]  # fmt: skip


def _claims() -> Iterator[Claim]:
    able = {
        "parity": "A_t with a negative eigenvalue",
        "word_z60": "A_t with two reflections or an angle of the token",
        "word_s3": "A_t with two reflections",
        "word_s5": "A_t with four reflections",
    }
    unable = {
        "parity": "A_t with positive eigenvalues",
        "word_z60": "A_t with signs or one reflection",
        "word_s3": "A_t with signs or one reflection",
        "word_s5": "A_t with one or two reflections",
    }
    for task, words in TASKS.items():
        yield Claim(
            f"State tracking, {words}, learned",
            f"In one layer, {able[task]} learns {words} in most seeds.",
            PLACE,
            (STEM,),
            _learned(task),
            any_of=task == "word_z60",
            reads=tuple(_where(task, name) for name in ABLE[task]),
        )
        yield Claim(
            f"State tracking, {words}, out of reach",
            f"In one layer, {unable[task]} does not learn {words}.",
            PLACE,
            (STEM,),
            _missed(task),
            reads=tuple(_where(task, name) for name in UNABLE[task]),
        )
    yield Claim(
        "State tracking, four times the length",
        "What follows parity and permutations by reflections does so at four times the length.",
        PLACE,
        (STEM,),
        _far,
        reads=tuple(_where(task, name) for task, names in FAR.items() for name in names),
    )


EXPERIMENTS = (
    Experiment(
        STEM,
        caption="State tracking in one layer. Mean accuracy by A_t, and in how many seeds it is "
        f"at least {SOLVED}, at the trained length and at two and four times it. Not in the paper. "
        "A token g needs rank(I - rho(g)) reflections: parity one, permutations of 3 two, of 5 "
        "four.",
        draw=draw,
        claims=tuple(_claims()),
    ),
)
