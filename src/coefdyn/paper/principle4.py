"""Principle 4: which transformations A_t can make."""

from collections.abc import Callable
from itertools import product

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from coefdyn.paper.points import chance_of, one_each
from coefdyn.plot.style import (
    GREY,
    PAGE,
    PINK,
    accuracy_axis,
    legend_below,
    paper_style,
    task_name,
)
from coefdyn.results.claim import POINT, Claim, Judgement, Tables, judged, value_of
from coefdyn.results.experiment import Experiment

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
            _draw_task(axes, one_each(rows, "evolution")["accuracy"].to_dict())
            axes.set_title(task_name(task))
            accuracy_axis(axes, chance_of(rows), label=task == TASKS[0])
        legend_below(figure, columns=4)
    return figure


def _draw_task(axes: Axes, accuracy: dict[str, float]) -> None:
    places, means, best = [], [], []
    for place, (_, grey, pink) in enumerate(STRUCTURES.values()):
        both = [accuracy[name] for name in (grey, pink) if name in accuracy]
        for name, colour, word in (
            (grey, GREY, "GLA / strength 2"),
            (pink, PINK, "Mamba-2 / learned"),
        ):
            if name in accuracy:
                axes.plot(place, accuracy[name], "o", color=colour, label=word, zorder=3)
        if both:
            places.append(place)
            means.append(sum(both) / len(both))
            best.append(max(both))
    axes.plot(places, means, "-", color="0.5", linewidth=1, label="mean of both")
    axes.plot(places, best, "--", color="0.2", linewidth=1, label="better of both")
    axes.set_xticks(
        range(len(STRUCTURES)), [words for words, _, _ in STRUCTURES.values()], fontsize=7
    )
    axes.set_xlim(-0.4, len(STRUCTURES) - 0.6)


def _both(tables: Tables, task: str, structure: str) -> list[float]:
    """The accuracies of a structure's two parameterizations."""
    choices = STRUCTURES[structure][1:]
    return [value_of(tables, STEM, "accuracy", task=task, evolution=name) for name in choices]


def _structures_rise(task: str) -> Callable[[Tables], Judgement]:
    def check(tables: Tables) -> Judgement:
        best = {name: max(_both(tables, task, name)) for name in STRUCTURES}
        scalar, diagonal = best["scalar"], best["diagonal"]
        householder = max(best["householder_key"], best["householder_free"])
        statistic = f"scalar {scalar:.3f}, diagonal {diagonal:.3f}, Householder {householder:.3f}"
        rises = scalar <= diagonal + POINT and diagonal <= householder + POINT
        return judged(rises and householder > scalar + POINT, statistic)

    return check


def _parameterization_matters(tables: Tables) -> Judgement:
    both = {pair: _both(tables, *pair) for pair in product(TASKS, STRUCTURES)}
    gaps = {pair: max(accuracies) - min(accuracies) for pair, accuracies in both.items()}
    (task, name), gap = max(gaps.items(), key=lambda item: item[1])
    statistic = f"largest gap {gap:.3f}: {name.replace('_', ' ')} on {task_name(task)}"
    return judged(gap > 2 * POINT, statistic)


EXPERIMENTS = (
    Experiment(
        STEM,
        caption="Principle 4. Accuracy by the structure of A_t. Grey: GLA's parameterization, or "
        "strength 2; pink: Mamba-2's, or learned strength. Solid line: mean of the two; dashed: "
        "the better one.",
        draw=draw,
        claims=(
            *(
                Claim(
                    f"P4 structure, {task_name(task)}",
                    f"On {task_name(task)}, accuracy rises from scalar to diagonal to Householder "
                    "A_t.",
                    "a larger structure more than a point below a smaller one, each at its better, "
                    "or Householder less than a point above scalar",
                    (STEM,),
                    _structures_rise(task),
                )
                for task in TASKS
            ),
            Claim(
                "P4 parameterization",
                "How a structure is parameterized matters too.",
                "no structure whose two parameterizations are more than 2 points apart",
                (STEM,),
                _parameterization_matters,
            ),
        ),
    ),
)
