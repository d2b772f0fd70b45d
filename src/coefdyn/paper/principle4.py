"""Principle 4: which transformations A_t can make."""

from collections.abc import Callable, Iterator
from itertools import product

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from coefdyn.paper.points import chance_of, one_each, seeds_of
from coefdyn.plot.style import (
    BLUE,
    GREY,
    ORANGE,
    PAGE,
    PINK,
    accuracy_axis,
    legend_below,
    paper_style,
    show_seeds,
    task_name,
)
from coefdyn.results.claim import Claim, Effect, NotEnoughRunsError, Region, Tables, size_of
from coefdyn.results.effects import contrast, rates_inside, values_of
from coefdyn.results.experiment import Experiment
from coefdyn.results.variance import Values, reach_of

STEM = "principle4_evolution"
TASKS = ("fuzzy_recall", "selective_copying")
# structure -> (its name, the grey choice, the pink choice)
STRUCTURES = {
    "scalar": ("scalar", "scalar_gla", "scalar_mamba2"),
    "diagonal": ("diagonal", "diagonal_gla", "diagonal_mamba2"),
    "householder_key": ("Householder,\n$k_t$", "householder_key_fixed", "householder_key_learned"),
    "householder_free": (
        "Householder,\n$z_t$",
        "householder_free_fixed",
        "householder_free_learned",
    ),
}


def draw(tables: Tables) -> Figure:
    points = tables[STEM]
    with paper_style():
        figure = Figure(figsize=(PAGE, 2.9), layout="constrained")
        for axes, task in zip(figure.subplots(1, 2, sharey=True), TASKS, strict=True):
            rows = points[points["task"] == task]
            by_evolution = one_each(rows, "evolution")
            seeds = {
                str(name): seeds_of(tables, STEM, row.to_dict() | {"evolution": name}, "accuracy")
                for name, row in by_evolution.iterrows()
            }
            _draw_task(axes, by_evolution["accuracy"].to_dict(), seeds)
            axes.set_title(task_name(task))
            accuracy_axis(axes, chance_of(rows), label=task == TASKS[0])
        legend_below(figure, columns=4)
    return figure


def _draw_task(axes: Axes, accuracy: dict[str, float], seeds: dict[str, Values]) -> None:
    places, means, best = [], [], []
    for place, (_, grey, pink) in enumerate(STRUCTURES.values()):
        both = [accuracy[name] for name in (grey, pink) if name in accuracy]
        for name, colour, word in (
            (grey, GREY, "GLA / strength 2"),
            (pink, PINK, "Mamba-2 / learned"),
        ):
            if name in accuracy:
                x = place + (0.06 if colour == PINK else -0.06)
                show_seeds(axes, x, seeds[name], (0.0, reach_of(seeds[name])), colour)
                axes.plot(x, accuracy[name], "o", color=colour, label=word, zorder=3)
        if both:
            places.append(place)
            means.append(sum(both) / len(both))
            best.append(max(both))
    axes.plot(places, means, "-", color=BLUE, linewidth=1, label="mean of both")
    axes.plot(places, best, "-", color=ORANGE, linewidth=1, label="better of both")
    axes.set_xticks(
        range(len(STRUCTURES)), [words for words, _, _ in STRUCTURES.values()], fontsize=7
    )
    axes.set_xlim(-0.4, len(STRUCTURES) - 0.6)


PLACE = "Principle 4 and its figure"
GAP = 0.05


def _where(task: str, evolution: str) -> dict[str, object]:
    return {"task": task, "evolution": evolution}


def _better(tables: Tables, task: str, *structures: str) -> dict[str, object]:
    """The point of the parameterization, among these structures, that did best in the pilots."""
    table = tables.get(STEM)
    if table is None:
        raise NotEnoughRunsError(f"no table of {STEM}")
    names = [name for structure in structures for name in STRUCTURES[structure][1:]]
    rows = table[(table["task"] == task) & table["evolution"].isin(names)]
    if len(rows) < len(names):
        raise NotEnoughRunsError(f"{STEM} has {len(rows)} of {len(names)} points on {task}")
    column = "accuracy_optimistic" if rows["accuracy_optimistic"].notna().all() else "accuracy"
    return _where(task, rows.sort_values(column, kind="stable")["evolution"].iloc[-1])


def _structures_rise(task: str) -> Callable[[Tables], list[Effect]]:
    def effects(tables: Tables) -> list[Effect]:
        points = {
            "scalar": _better(tables, task, "scalar"),
            "diagonal": _better(tables, task, "diagonal"),
            "Householder": _better(tables, task, "householder_key", "householder_free"),
        }

        def difference(one: str, other: str, least: float) -> Effect:
            terms = [(1.0, STEM, "accuracy", points[one]), (-1.0, STEM, "accuracy", points[other])]
            return contrast(tables, f"{one} - {other}", terms, Region(least))

        return [
            difference("diagonal", "scalar", -0.02),
            difference("Householder", "diagonal", -0.02),
            difference("Householder", "scalar", GAP),
        ]

    return effects


def _scalar_fails(task: str) -> Callable[[Tables], str | None]:
    def obstacle(tables: Tables) -> str | None:
        where = _better(tables, task, "scalar")
        mean = float(values_of(tables, STEM, "accuracy", where).mean())
        return None if mean <= 0.9 else f"a scalar A_t already has {mean:.2f}: no room above it"

    return obstacle


def _gaps(tables: Tables) -> list[Effect]:
    """The gap between the two parameterizations of each structure, whichever is better."""
    effects = []
    for task, (name, (_, one, other)) in product(TASKS, STRUCTURES.items()):
        terms = [(1.0, STEM, "accuracy", _where(task, one)),
                 (-1.0, STEM, "accuracy", _where(task, other))]  # fmt: skip
        words = f"{name.replace('_', ' ')} on {task_name(task)}"
        effects.append(size_of(contrast(tables, words, terms, Region()), Region(GAP)))
    return effects


def _claims() -> Iterator[Claim]:
    for task in TASKS:
        points = tuple(_where(task, name) for _, *pair in STRUCTURES.values() for name in pair)
        yield Claim(
            f"P4 structure, {task_name(task)}",
            f"On {task_name(task)}, accuracy rises from scalar to diagonal to Householder A_t.",
            PLACE,
            (STEM,),
            _structures_rise(task),
            (_scalar_fails(task), rates_inside(STEM, points)),
            reads=points,
        )
    yield Claim(
        "P4 parameterization",
        "How a structure is parameterized matters too: one of the gaps is 5 points at least.",
        PLACE,
        (STEM,),
        _gaps,
        any_of=True,
    )


EXPERIMENTS = (
    Experiment(
        STEM,
        caption="Principle 4. Accuracy by the structure of A_t. Grey: GLA's parameterization, or "
        "strength 2; pink: Mamba-2's, or learned strength. Blue line: mean of the two; orange: "
        "the better one. Small dots are seeds, lines 95 % intervals of their means.",
        draw=draw,
        claims=tuple(_claims()),
    ),
)
