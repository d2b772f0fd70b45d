"""Principle 4: which transformations A_t can make."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from coefdyn.paper.figures import Tables, one_each
from coefdyn.plot.style import (
    GREY,
    PAGE,
    PINK,
    accuracy_axis,
    legend_below,
    paper_style,
    task_name,
)

CAPTION = (
    "Principle 4. Accuracy by the structure of A_t. Grey: GLA's parameterization, or strength "
    "2; pink: Mamba-2's, or learned strength. Solid line: mean of the two; dashed: the better "
    "one."
)
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
    points = tables["principle4_evolution"]
    with paper_style():
        figure = Figure(figsize=(PAGE, 2.9), layout="constrained")
        for axes, task in zip(figure.subplots(1, 2, sharey=True), TASKS, strict=True):
            rows = one_each(points[points["task"] == task], "evolution")["accuracy"]
            _draw_task(axes, {name: float(value) for name, value in rows.items()})
            axes.set_title(task_name(task))
            chance = points.loc[points["task"] == task, "chance"]
            accuracy_axis(axes, chance.iloc[0] if len(chance) else None, label=task == TASKS[0])
        legend_below(figure, columns=4)
    return figure


def _draw_task(axes: Axes, accuracy: dict[str, float]) -> None:
    places, means, best = [], [], []
    for place, (_, grey, pink) in enumerate(STRUCTURES.values()):
        found = [accuracy[name] for name in (grey, pink) if name in accuracy]
        for name, colour, word in (
            (grey, GREY, "GLA / strength 2"),
            (pink, PINK, "Mamba-2 / learned"),
        ):
            if name in accuracy:
                axes.plot(place, accuracy[name], "o", color=colour, label=word, zorder=3)
        if found:
            places.append(place)
            means.append(sum(found) / len(found))
            best.append(max(found))
    axes.plot(places, means, "-", color="0.5", linewidth=1, label="mean of both")
    axes.plot(places, best, "--", color="0.2", linewidth=1, label="better of both")
    axes.set_xticks(
        range(len(STRUCTURES)), [words for words, _, _ in STRUCTURES.values()], fontsize=7
    )
    axes.set_xlim(-0.4, len(STRUCTURES) - 0.6)
