"""Figures of principle 2: each number of a table stands where its panel and label say."""

import numpy as np
import pandas as pd
import pytest

from coefdyn.paper import looks
from coefdyn.paper.principle2_kernels import zeros_per_index
from coefdyn.plot.style import BLUE, GREY
from tests.paper.pictures import (
    KERNELS,
    NEAR_ZERO,
    READOUTS,
    TASKS,
    chance_is_marked,
    drawn,
    legend,
    levels,
    made_up,
    marks,
    texts,
    the,
    ticks,
    wording,
)
from tests.paper.pictures import looks as looks_of
from tests.paper.worlds import record, runs_of

ACCURACY = "test accuracy"
SHOWN = READOUTS | {"exp": "$e^s$ (softmax attention)"}  # in the figure of principle 2


def test_p2_shows_accuracy_by_near_zero_and_by_ratio() -> None:
    table = made_up(task=TASKS, readout=READOUTS)
    figure = drawn("principle2_readout", principle2_readout=table)
    styles = {SHOWN[name]: (looks.READOUTS[name][1], "o") for name in READOUTS}
    styles[SHOWN["exp"]] = (BLUE, "*")
    assert legend(figure) == styles
    raw = NEAR_ZERO.replace(r"/\eta_i", "")
    for number_of, task in enumerate(TASKS):
        panels = figure.axes[3 * number_of : 3 * number_of + 3]
        label = "" if number_of else ACCURACY
        titles = (task.replace("_", " "), "", "")
        words = (NEAR_ZERO, raw, r"in $[0.9, 1]$ / near zero, of $\alpha_{ij}/\eta_i$")
        assert [wording(a) for a in panels] == [*zip(titles, words, [label] * 3, strict=True)]
        assert [axes.get_xscale() for axes in panels] == ["linear", "linear", "log"]
        for axes, column in zip(panels, ("near_zero", "near_zero_raw", "ratio"), strict=True):
            found = marks(axes)
            for name, shown in SHOWN.items():
                x, y, start = (the(table, c, task=task, readout=name) if c in table else None
                               for c in (column, "accuracy", f"{column}_initial"))  # fmt: skip
                assert found.pop(shown) == [(x, y)]
                if start is not None:  # a dotted line from a hollow mark
                    colour = looks.READOUTS[name][1].upper()
                    assert found.pop(colour) == [(start, y), (x, y), (start, y)]
            assert not found
            assert looks_of(axes) == styles
            ceiling = the(table, "ceiling", task=task, readout="exp")
            assert len(levels(axes)) == 2
            assert any(style == "--" for _, style in levels(axes).values()), ceiling
            assert chance_is_marked(axes, task, 0.02 if column == "ratio" else 1.0)


def test_p2_shows_every_seed_and_the_interval_of_their_mean() -> None:
    table = made_up(task=TASKS[:1], readout=["relu"])
    run = table.iloc[0].to_dict()
    runs = pd.DataFrame([run | {"seed": seed, "near_zero": x, "accuracy": y}
                         for seed, x, y in ((0, 0.1, 0.5), (1, 0.2, 0.6), (2, 0.3, 0.7),
                                            (100, 0.9, 0.9))])  # fmt: skip
    runs = runs.assign(status="finished")
    figure = drawn("principle2_readout", principle2_readout=table, principle2_readout_runs=runs)
    dots, along, up = figure.axes[0].collections
    assert dots.get_offsets().tolist() == pytest.approx(
        np.array([[0.1, 0.5], [0.2, 0.6], [0.3, 0.7]])
    )
    reach = 4.302653 * 0.1 / 3**0.5  # Student's t of two degrees of freedom; not the pilot
    assert along.get_segments()[0][:, 0] == pytest.approx([0.2 - reach, 0.2 + reach], abs=1e-5)
    assert up.get_segments()[0][:, 1] == pytest.approx([0.6 - reach, 0.6 + reach], abs=1e-5)


def test_p2_leaves_out_points_that_have_no_place_and_says_where_none_is_left() -> None:
    table = made_up(task=TASKS[:2], readout=READOUTS)
    fuzzy, identity = table["task"] == "fuzzy_recall", table["readout"] == "identity"
    table.loc[identity, "near_zero"] = float("nan")
    table.loc[~fuzzy, "ratio"] = 0.0
    table.loc[identity, "ratio"] = float("nan")
    table.loc[fuzzy & (table["readout"] == "relu"), "readout"] = "of_a_plugin"
    figure = drawn("principle2_readout", principle2_readout=table)
    near, _, ratio, other, _, no_ratio, *rest = figure.axes
    assert len(rest) == 2  # no panels for a task without runs
    assert looks_of(near).keys() == looks_of(ratio).keys()
    assert looks_of(near).keys() == {*SHOWN.values(), "of a plugin"} - {"identity", "relu"}
    assert looks_of(near)["of a plugin"] == (GREY, "o")
    assert looks_of(other).keys() == set(SHOWN.values()) - {"identity"}
    assert marks(no_ratio) == {}
    assert ("no point has one", 0.5, 0.5) in texts(no_ratio)


def test_p2_shows_the_readouts_and_where_they_are_near_zero() -> None:
    figure = drawn("principle2_readout", principle2_readout=made_up(task=TASKS, readout=READOUTS))
    curves, sets = figure.axes[-2:]
    s = np.linspace(-8, 2, 400)
    values = {
        "exp": np.exp(s),
        "softplus": np.log(1 + np.exp(s)),
        "relu": np.maximum(s, 0),
        "identity": s,
        "sigmoid": 1 / (1 + np.exp(-s)),
        "elu_plus_one": np.where(s > 0, s + 1, np.exp(s)),
    }
    assert wording(curves) == ("the readouts", "$s$", r"$\phi(s)$")
    assert len(marks(curves)) == len(values)
    for name, points in marks(curves).items():
        readout = next(r for r, (_, colour) in looks.READOUTS.items() if colour == name)
        np.testing.assert_allclose(points, np.stack([s, values[readout]], axis=1), atol=1e-6)
    assert levels(curves) == {0.0: ("", "-")}
    ends = {"exp": -6.908, "softplus": -6.907, "relu": 0.001, "sigmoid": -6.907,
            "elu_plus_one": -6.908}  # fmt: skip
    assert wording(sets) == (r"where $|\phi(s)| \leq 10^{-3}$", "$s$", "")
    assert list(ticks(sets.yaxis).values()) == list(READOUTS.values())
    for height, name in enumerate(READOUTS):
        half_line = name in ends
        left, right = (-12, ends[name]) if half_line else (-0.001, 0.001)
        points = [x for x, y in marks(sets)[looks.READOUTS[name][1]] if y == height]
        assert points == pytest.approx([left, right, *([] if half_line else [0])], abs=5e-4)
        ((text, x),) = [(text, x) for text, x, y in texts(sets) if text and y == height]
        assert text == (f"$\\leq {right:.3f}$" if half_line else r"$|s| \leq 0.001$")
        assert x == pytest.approx(right, abs=5e-4)
    arrows = [(x, y) for text, x, y in texts(sets) if not text]
    assert arrows == [(-12.9, y) for y, name in enumerate(READOUTS) if name in ends]


def test_p21_shows_kernels_between_the_levels_of_exp_and_identity() -> None:
    tables = {
        "principle2_1_kernel": made_up(task=TASKS[:2], readout=KERNELS),
        "principle2_readout": made_up(task=TASKS, readout=READOUTS).iloc[::-1],
    }
    kernels, scores = tables.values()
    figure = drawn("principle2_1_kernel", **tables)
    stars = {READOUTS[name]: (looks.READOUTS[name][1], "*") for name in ("exp", "identity")}
    squares = {KERNELS[name]: (looks.READOUTS[name][1], "s") for name in KERNELS}
    assert legend(figure) == squares | stars
    for axes, task in zip(figure.axes, TASKS[:2], strict=True):
        assert wording(axes) == (task.replace("_", " "), NEAR_ZERO, ACCURACY)
        assert looks_of(axes) == squares | stars
        both = {n: (words, kernels) for n, words in KERNELS.items()}
        both |= {n: (READOUTS[n], scores) for n in ("exp", "identity")}
        assert marks(axes) == {
            words: [tuple(the(table, c, task=task, readout=n) for c in ("near_zero", "accuracy"))]
            for n, (words, table) in both.items()
        }
        assert chance_is_marked(axes, task)
        at = {the(scores, "accuracy", task=task, readout=name) for name in ("exp", "identity")}
        assert at < levels(axes).keys()


def test_p22_shows_zeros_by_step_under_the_limit_of_their_task() -> None:
    names, limits = ("kernel_softplus", "kernel_exp"), dict(zip(TASKS[:2], (7, 15), strict=True))
    rows = [
        (task, name, step, limit, 10 * n + m + step / 10)
        for n, (task, limit) in enumerate(limits.items())
        for m, name in enumerate(names)
        for step in (1, 2, 3)
    ]
    table = pd.DataFrame(rows, columns=["task", "readout", "index", "limit", "zeros"])
    figure = drawn("principle2_2_zeros", principle2_2_zeros_index=table)
    styles = {KERNELS[name]: (looks.READOUTS[name][1], "-") for name in names}
    assert legend(figure) == styles
    heading = r"number of $|\alpha_{ij}| \leq 10^{-6}$"
    for axes, (task, limit) in zip(figure.axes, limits.items(), strict=True):
        assert wording(axes) == (task.replace("_", " "), "time index $i$", heading)
        heading = ""
        assert looks_of(axes) == styles
        assert marks(axes) == {
            KERNELS[name]: [
                (i, the(table, "zeros", task=task, readout=name, index=i)) for i in (1, 2, 3)
            ]
            for name in names
        }
        assert levels(axes) == {limit: ("", "--")}
        assert texts(axes) == [(f"$n/H - 1 = {limit}$", 0.02, limit)]
        assert axes.get_ylim()[1] > 15


def test_p22_counts_zeros_in_the_head_of_layer_1_that_has_most() -> None:
    run = runs_of("principle2_2_zeros")[0]
    made = record("principle2_2_zeros", run)
    layers = [[[0, 1, 0], [0, 2, 3], [4, 0, 0]], [[9, 9, 9]] * 3]
    made.coefficients["per_head"]["zeros_per_index"] = layers
    points = made_up(task=TASKS[:1], readout=["kernel_exp"]).assign(zero_limit=7, run_id=run.run_id)
    table = zeros_per_index(points, {run.run_id: made})
    assert list(zip(table["index"], table["zeros"], strict=True)) == [(1, 0), (2, 2), (3, 3)]
    shared = table[["task", "readout", "layer", "head", "limit"]].drop_duplicates()
    assert shared.to_numpy().tolist() == [["fuzzy_recall", "kernel_exp", 1, 2, 7]]
