"""Figures of bars and of cells: each number of a table stands, and is written, at its place."""

import pandas as pd
import pytest
from matplotlib.colors import to_hex

from coefdyn.paper import experiments
from coefdyn.paper.looks import NORMALIZATIONS, SCALINGS
from coefdyn.plot.style import BLUE, GREEN, GREY, ORANGE, PINK, RED, SKY
from tests.paper.pictures import (
    TASKS,
    bars,
    legend,
    levels,
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

GROUPS = ("exp", "softplus", "relu")  # of bars, from left to right
P3 = {  # label -> what it stands for, and how it looks
    "$A=I$, positions": ({"evolution": "identity", "position": "learned"}, (BLUE, "")),
    "$A=I$, none": ({"evolution": "identity", "position": "none"}, (BLUE, "////")),
    "$A=0.8I$, positions": ({"evolution": "constant", "position": "learned"}, (ORANGE, "")),
    "$A=0.8I$, none": ({"evolution": "constant", "position": "none"}, (ORANGE, "////")),
}
P6 = {
    label: ({"normalization": name}, (NORMALIZATIONS[name][1], ""))
    for label, name in (
        (r"$\eta_i=1$", "one"),
        (r"$\eta_i=c^i$", "power"),
        (r"$\eta_i=\sum_j\alpha_{ij}$", "row_sum"),
    )
}


def grid_of(described: dict) -> dict[str, list[str]]:
    """What the bars tell apart, and every value of it."""
    choices = [choice for choice, _ in described.values()]
    return {name: list(dict.fromkeys(c[name] for c in choices)) for name in choices[0]}


GROWN = "$A=1.4I$: a key grows 218-fold in 16 steps"  # 1.4^16 = 217.8


@pytest.mark.parametrize(
    ("stem", "described", "title"),
    [
        ("principle3_position", P3, "16 steps; $A=0.8I$ halves a key in 3"),  # 0.8^3 = 0.51
        ("principle6_normalization", P6, GROWN),
        ("principle6_no_post_norm", P6, GROWN),
    ],
)
def test_p3_and_p6_show_an_accuracy_for_each_readout_and_choice(
    stem: str, described: dict, title: str
) -> None:
    table = made_up(task=TASKS[:1], readout=GROUPS, **grid_of(described)).assign(order_free=0.4)
    figure = experiments()[stem].draw({stem: table})
    (axes,) = figure.axes
    width = 0.8 / len(described)
    expected = {}
    for group, name in enumerate(GROUPS):
        for place, (label, (choice, look)) in enumerate(described.items()):
            middle = number(group - 0.4 + width * (place + 0.5))
            expected[middle] = (the(table, "accuracy", readout=name, **choice), label, look)
    assert bars(axes) == expected
    assert all(bar.get_width() < width for bar in axes.patches)  # none covers another
    numbers = [(f"{height:.2f}", x, 0.02) for x, (height, *_) in expected.items()]
    lines = [("chance", 1.0, 0.0625), ("counting\ntokens", 1.0, 0.4)]
    assert texts(axes) == sorted([*numbers, *lines])
    assert levels(axes) == {0.0625: ("", ":"), 0.4: ("", ":")}
    assert legend(figure) == {label: look for label, (_, look) in described.items()}
    assert wording(axes) == (title, "", "test accuracy")
    assert ticks(axes.xaxis) == {0: "$e^s$", 1: "softplus", 2: "relu"}


@pytest.mark.parametrize(
    ("stem", "normalization", "words"),
    [
        ("principle6_normalization", "power", r"same as $\eta_i=1$"),
        ("principle6_normalization", "row_sum", "not run"),
        ("principle6_no_post_norm", "power", "not run"),
    ],
)
def test_p6_says_why_a_bar_is_absent(stem: str, normalization: str, words: str) -> None:
    table = made_up(task=TASKS[:1], readout=GROUPS, **grid_of(P6))
    absent = (table["normalization"] == normalization) & (table["readout"] == "relu")
    (axes,) = experiments()[stem].draw({stem: table[~absent]}).axes
    place = 2 - 0.4 + 0.8 / 3 * (list(NORMALIZATIONS).index(normalization) + 0.5)
    assert (words, number(place), 0.02) in texts(axes)
    assert len(bars(axes)) == 8
    assert axes.get_ylim() == (0, 1.05)


def test_a_bar_says_how_many_of_its_runs_diverged_and_a_missing_one_leaves_its_place() -> None:
    table = made_up(readout=GROUPS, normalization=["one", "power", "row_sum"])
    chosen = (table["readout"] == "relu") & (table["normalization"] == "power")
    missing = (table["readout"] == "exp") & (table["normalization"] == "one")
    table["runs"] = 9
    table.loc[chosen, "diverged"] = 4
    (axes,) = experiments()["principle6_normalization"].draw(
        {"principle6_normalization": table[~missing]}
    ).axes  # fmt: skip
    height = number(table[chosen]["accuracy"].iloc[0])
    marked = [text for text in texts(axes) if "diverged" in text[0]]
    assert marked == [("4/9 diverged", 2.0, number(height + 0.02))]
    assert sorted(bars(axes)) == pytest.approx(
        [x + shift for x in range(3) for shift in (-0.8 / 3, 0, 0.8 / 3)][1:], abs=1e-6
    )


LANGUAGE = {  # model -> the words under its bar, its colour, whether it is hatched and dashed
    "principle5_wikitext": {
        "mamba2_unscaled": ("Mamba-2\n$b=$ $1$\npaper:\n29.23", SCALINGS["one"][1], False),
        "mamba2_inverse_sqrt": (
            "Mamba-2\n$b=$ $1/\\sqrt{n}$\npaper:\n28.84", SCALINGS["inverse_sqrt"][1], False),
        "mamba2": ("Mamba-2\n$b=$ $\\Delta_j$\npaper:\n28.87", GREEN, False),
        "softmax_attention_unscaled": (
            "softmax\n$b=$ $1$\npaper:\n32.69", SCALINGS["one"][1], True),
        "softmax_attention": (
            "softmax\n$b=$ $1/\\sqrt{n}$\npaper:\n31.73", SCALINGS["inverse_sqrt"][1], True),
    },
    "all_principles_lm": {
        "all_principles": ("breaks\nnone", GREY, False),
        "all_but_p1": ("breaks\nP1", BLUE, False),
        "all_but_p2": ("breaks\nP2", ORANGE, False),
        "all_but_p3": ("breaks\nP3", GREEN, False),
        "all_but_p4": ("breaks\nP4", PINK, False),
        "all_but_p5": ("breaks\nP5", SKY, False),
        "all_but_p6": ("breaks\nP6", RED, False),
    },
}  # fmt: skip


@pytest.mark.parametrize("stem", LANGUAGE)
def test_language_shows_perplexities_and_the_mean_loss_of_each_model(stem: str) -> None:
    models = LANGUAGE[stem]
    points, curves = made_up(model=models), made_up_curves(model=models)
    points["test/perplexity_word"] = 20 + 10 * points["test/perplexity_word"]
    left, right = experiments()[stem].draw({stem: points, f"{stem}_curves": curves}).axes
    means = {name: the(points, "test/perplexity_word", model=name) for name in models}
    drawn = [
        (*line.get_xydata()[0], line.get_color(), line.get_markerfacecolor()) for line in left.lines
    ]
    assert drawn == [
        (place, means[name], colour, "white" if hollow else colour)
        for place, (name, (_, colour, hollow)) in enumerate(models.items())
    ]
    assert texts(left) == sorted((f"{mean:.1f}", x, mean) for x, mean in enumerate(means.values()))
    assert ticks(left.xaxis) == dict(enumerate(words for words, *_ in models.values()))
    assert wording(left) == ("", "", "test perplexity per word")
    names = {name: " ".join(words.split("\n")[:2]) for name, (words, *_) in models.items()}
    assert marks(right) == {
        names[name]: mean_over_seeds(curves, "train/loss", model=name) for name in models
    }
    assert legend(right) == {
        names[name]: (colour, "--" if dashed else "-")
        for name, (_, colour, dashed) in models.items()
    }
    assert wording(right) == ("", "training step", "training loss (nats per token)")


def test_language_says_which_models_diverged_and_which_have_no_run() -> None:
    stem, models = "all_principles_lm", list(LANGUAGE["all_principles_lm"])
    points, curves = made_up(model=models), made_up_curves(model=models)
    points.loc[points["model"] == "all_but_p2", "test/perplexity_word"] = float("nan")
    points = points[points["model"] != "all_but_p4"]
    left, _ = experiments()[stem].draw({stem: points, f"{stem}_curves": curves}).axes
    words = [text for text in texts(left) if not text[0][0].isdigit()]
    assert words == [("diverged", 2.0, 0.02), ("no run", 4.0, 0.02)]
    assert [line.get_xdata()[0] for line in left.lines] == [0, 1, 3, 5, 6]


PRESETS = {
    "softmax_attention": "softmax attention",
    "linear_attention": "linear attention",
    "normalized_attention": "normalized attention",
    "gla": "GLA",
    "mamba2": "Mamba-2",
    "deltanet": "DeltaNet",
    "gated_deltanet": "Gated DeltaNet",
    "mlstm": "mLSTM",
}


def test_architectures_show_an_accuracy_in_the_cell_of_its_model_and_task() -> None:
    tasks = ("in_context_recall", "memorization", "fuzzy_recall")
    table = made_up(task=tasks, model=[*PRESETS, "of_a_plugin"])
    missing = (table["task"] == "memorization") & (table["model"] == "gla")
    table = table[~missing].sort_values("task", key=lambda task: task.map(tasks.index))
    for edge, model in (("smallest", "mlstm"), ("largest", "deltanet"), ("only", "mamba2")):
        at = (table["model"] == model) & (table["task"] == "fuzzy_recall")
        table.loc[at, "lr_at_edge"] = edge
    axes, bar = experiments()["architectures"].draw({"architectures": table}).axes
    cells = {
        (column, row): the(table, "accuracy", task=task, model=model)
        for column, task in enumerate(tasks)
        for row, model in enumerate(PRESETS)
        if (task, model) != ("memorization", "gla")
    }
    image = pd.DataFrame(axes.images[0].get_array().filled(float("nan"))).stack().dropna()
    assert {(column, row): number(value) for (row, column), value in image.items()} == cells
    lines = [("____", 2, list(PRESETS).index(model)) for model in ("deltanet", "mlstm")]
    numbers = [(f"{value:.2f}", *place) for place, value in cells.items()]
    assert texts(axes) == sorted([*numbers, *lines])
    assert ticks(axes.xaxis) == {0: "in\ncontext recall", 1: "memorization", 2: "fuzzy\nrecall"}
    assert ticks(axes.yaxis) == dict(enumerate(PRESETS.values()))
    assert bar.get_ylabel() == "test accuracy"
    assert axes.images[0].get_clim() == (0, 1)
    for note in axes.texts:  # readable on its cell: cividis is dark below the middle
        dark = cells[note.xy] < 0.55
        assert to_hex(note.get_color()) == ("#ffffff" if dark else "#000000")
