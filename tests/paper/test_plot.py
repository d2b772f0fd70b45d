"""What all figures share, and the figure of an experiment that the paper does not have."""

from typing import Literal

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from coefdyn.plot.default import COLOURS, chosen_axes, draw_default
from coefdyn.plot.style import accuracy_axis, legend_below, log_axis, paper_style, task_name
from tests.paper.pictures import (
    CHANCES,
    TASKS,
    legend,
    levels,
    look,
    looks,
    made_up,
    made_up_curves,
    marks,
    mean_over_seeds,
    number,
    texts,
    the,
    ticks,
    wording,
)


def test_a_task_is_named_by_words() -> None:
    assert task_name("in_context_recall") == "in context recall"


@pytest.mark.parametrize(
    ("side", "x", "alignment"),
    [
        ("right", 1.0, ("right", "bottom")),
        ("left", 0.02, ("left", "bottom")),
        ("beside", 1.0, ("left", "center")),
    ],
)
def test_an_accuracy_axis_goes_from_0_to_1_and_marks_chance(
    side: Literal["left", "right", "beside"], x: float, alignment: tuple[str, str]
) -> None:
    axes = Figure().subplots()
    accuracy_axis(axes, 0.25, chance_at=side)
    assert axes.get_ylim() == (-0.03, 1.05)
    assert axes.get_ylabel() == "test accuracy"
    assert levels(axes) == {0.25: ("", ":")}
    assert texts(axes) == [("chance", x, 0.25)]
    (note,) = axes.texts
    assert (note.get_horizontalalignment(), note.get_verticalalignment()) == alignment
    assert note.xycoords == ("axes fraction", "data")


def test_an_accuracy_axis_without_a_chance_or_a_label_has_none() -> None:
    axes = Figure().subplots()
    accuracy_axis(axes, None, label=False)
    assert (levels(axes), texts(axes), axes.get_ylabel()) == ({}, [], "")


def test_a_log_axis_writes_its_ticks_as_numbers() -> None:
    axes = Figure().subplots()
    log_axis(axes)
    axes.set_xlim(0.02, 5)
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "linear")
    shown = {x: words for x, words in ticks(axes.xaxis).items() if 0.02 <= x <= 5}
    assert shown == {0.03: "0.03", 0.1: "0.1", 0.3: "0.3", 1: "1", 3: "3"}
    assert not any(label.get_text() for label in axes.get_xticklabels(minor=True))


def test_a_legend_has_each_label_of_any_panel_once_in_the_order_they_come() -> None:
    figure = Figure()
    left, right = figure.subplots(1, 2)
    for axes, labels in ((left, ("b", "a", "b")), (right, ("a", "c"))):
        for label in labels:
            axes.plot([0], [0], "o", label=label, color={"a": "red", "b": "blue"}.get(label))
    legend_below(figure, columns=2)
    assert list(legend(figure)) == ["b", "a", "c"]
    assert [colour for colour, _ in legend(figure).values()][:2] == ["#0000FF", "#FF0000"]


def test_the_style_of_the_paper_ends_with_its_figure() -> None:
    before = Figure().subplots().spines["top"].get_visible()
    with paper_style():
        assert not Figure().subplots().spines["top"].get_visible()
    assert Figure().subplots().spines["top"].get_visible() == before


CLIP = (0.5, 2.5, 10.5)
DESIGNS = (("exp", "learned"), ("exp", "none"), ("relu", "learned"))  # relu, none was not run
STYLES = {0.5: "-", 2.5: "--", 10.5: ":"}


def grid() -> dict[str, pd.DataFrame]:
    """Points and curves: two tasks, a number that has no column of its own, and two slots."""
    axes = {"task": TASKS[:2], "trainer.clip": CLIP, "readout": ("exp", "relu")}
    tables = {}
    for name, make in (("mine", made_up), ("mine_curves", made_up_curves)):
        table = make(**axes, position=("learned", "none"))
        table = table[(table["readout"] == "exp") | (table["position"] == "learned")]
        tables[name] = table.sort_values(["task", "readout", "position"])
    tables["mine"]["test/perplexity"] = float("nan")  # as of all but text
    return tables


def test_any_experiment_has_a_panel_per_task_of_means_and_of_their_spread() -> None:
    tables = grid()
    figure, points = draw_default("mine", tables), tables["mine"]
    assert legend(figure) == {
        f"{readout}, {position}": (colour, "o")
        for (readout, position), colour in zip(DESIGNS, COLOURS, strict=False)
    }
    for task, axes in zip(TASKS[:2], figure.axes[:2], strict=True):
        means, spreads = {}, []
        for (readout, position), shift in zip(DESIGNS, (-0.2, 0, 0.2), strict=True):
            one = {"task": task, "readout": readout, "position": position}
            rows = [(number(x + shift), one | {"trainer.clip": c}) for x, c in enumerate(CLIP)]
            means[f"{readout}, {position}"] = {(x, the(points, "accuracy", **w)) for x, w in rows}
            low, high = (
                [the(points, f"accuracy_{m}", **w) for _, w in rows] for m in ("min", "max")
            )
            spreads += zip((x for x, _ in rows), low, high, strict=True)
        assert {label: set(found) for label, found in marks(axes).items()} == means
        segments = [ends for lines in axes.collections for ends in lines.get_segments()]
        drawn = [(number(x), number(low), number(high)) for (x, low), (_, high) in segments]
        assert sorted(drawn) == sorted(spreads)
        assert wording(axes) == (task.replace("_", " "), "trainer.clip", "test accuracy")
        assert ticks(axes.xaxis) == {place: str(clip) for place, clip in enumerate(CLIP)}
        assert axes.get_xlim() == pytest.approx((-0.6, 2.6))
        assert levels(axes) == {CHANCES[task]: ("", ":")}
        assert looks(axes) == legend(figure)


@pytest.mark.parametrize(
    ("column", "words"),
    [
        ("test/accuracy", "test accuracy"),
        ("validation/loss", "validation loss"),
        ("train/loss", "train loss"),
    ],
)
def test_below_are_mean_curves_in_the_colours_of_the_points(column: str, words: str) -> None:
    """Of what the runs have: tasks a test accuracy, text a validation loss."""
    tables, order = grid(), ["test/accuracy", "validation/loss", "train/loss"]
    curves = tables["mine_curves"]
    curves[order[: order.index(column)]] = float("nan")
    figure = draw_default("mine", tables)
    for task, axes in zip(TASKS[:2], figure.axes[2:], strict=True):
        drawn = {
            (*look(line), *map(tuple, np.round(line.get_xydata(), 6).tolist()))
            for line in axes.get_lines()
        }
        assert drawn == {
            (COLOURS[place], STYLES[clip], *mean_over_seeds(curves, column, **which))
            for place, (readout, position) in enumerate(DESIGNS)
            for clip in CLIP
            for which in [{"task": task, "readout": readout, "position": position,
                           "trainer.clip": clip}]
        }  # fmt: skip
        assert wording(axes) == ("", "training step", words)
        assert {clip: style for clip, (_, style) in legend(axes).items()} == {
            str(clip): style for clip, style in STYLES.items()
        }
        assert axes.get_legend().get_title().get_text() == "trainer.clip"


def test_an_experiment_on_text_shows_perplexities() -> None:
    """A panel without a title, and without what its runs do not have."""
    table = made_up(model=("mamba2", "gla"))
    upper, lower = (figure := draw_default("mine", {"mine": table})).axes
    places = enumerate(("gla", "mamba2"))
    assert set(marks(upper).popitem()[1]) == {
        (place, the(table, "test/perplexity", model=model)) for place, model in places
    }
    assert wording(upper) == ("", "model", "test perplexity")
    assert ticks(upper.xaxis) == {0: "gla", 1: "mamba2"}
    assert (levels(upper), list(upper.collections), figure.legends) == ({}, [], [])
    assert texts(lower) == [("no curves", 0.5, 0.5)]


def test_tasks_of_different_chance_in_one_panel_mark_none() -> None:
    table = made_up(readout=("exp", "relu")).assign(**{"test/perplexity": float("nan")})
    table["chance"] = [0.1, 0.2]
    assert levels(draw_default("mine", {"mine": table}).axes[0]) == {}


def test_panels_and_colours_stand_for_what_varies_and_follows_from_nothing_else() -> None:
    presets = made_up(task=TASKS, model=("gla", "mamba2"), n_state=(16, 32, 64))
    presets["evolution"] = [f"{model}_evolution" for model in presets["model"]]  # as of a preset
    assert chosen_axes(presets) == ("task", "n_state", ["model"])
    assert chosen_axes(made_up(readout=("exp", "relu", "identity"), position=("none", "learned"))
                       ) == (None, "readout", ["position"])  # fmt: skip
    assert chosen_axes(made_up(task=TASKS)) == ("task", None, [])
    mine = made_up(readout=("exp", "relu")).assign(seq_len=(8, 16))
    mine.insert(list(mine.columns).index("seq_len") + 1, "trainer.clip", (0.5, 2.5))
    assert chosen_axes(mine) == (None, "trainer.clip", [])  # of what varies together, the setting


def test_a_blank_is_a_value_of_its_own() -> None:
    """As the size of a state, of a mixer that has none."""
    sizes = (16.0, float("nan"))
    assert chosen_axes(made_up(n_state=sizes)) == (None, "n_state", [])
    assert chosen_axes(made_up(model=("gla", "mine"), n_state=sizes))[1:] == ("n_state", ["model"])


def test_an_experiment_on_tasks_alone_has_a_point_in_each() -> None:
    table = made_up(task=TASKS)
    figure = draw_default("mine", {"mine": table})
    for task, axes in zip(table["task"], figure.axes, strict=False):
        assert list(marks(axes).values()) == [[(0, the(table, "test/perplexity", task=task))]]
        assert wording(axes) == (task.replace("_", " "), "", "test perplexity")
        assert ticks(axes.xaxis) == {0: ""}


def test_whole_numbers_stand_by_size() -> None:
    axes = draw_default("mine", {"mine": made_up(n_state=(16, 32, 128))}).axes[0]
    assert ticks(axes.xaxis) == {0: "16", 1: "32", 2: "128"}


def test_a_colour_is_the_same_design_where_a_panel_lacks_another() -> None:
    tables = grid()
    points = tables["mine"]
    lacking = (points["task"] == "selective_copying") & (points["position"] == "none")
    figure = draw_default("mine", tables | {"mine": points[~lacking]})
    for axes in figure.axes[:2]:
        assert looks(axes).items() <= legend(figure).items()
