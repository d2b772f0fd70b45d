"""Figures of principles 1, 4 and 5: each number of a table stands where its panel and label say."""

import numpy as np
import pytest

from coefdyn.paper import looks
from coefdyn.plot.style import BLUE, GREY, ORANGE, PINK, RED
from tests.paper.pictures import (
    TASKS,
    chance_is_marked,
    drawn,
    legend,
    made_up,
    marks,
    number,
    texts,
    the,
    ticks,
    wording,
)
from tests.paper.pictures import looks as looks_of
from tests.paper.worlds import lengths

ACCURACY = "test accuracy"


MAMBA, SOFTMAX = "Mamba-2, recurrent: slope {}", "softmax attention: slope {}"
LENGTHS = (1024, 2048, 4096, 8192, 16384)


def test_p1_shows_time_by_length_on_log_axes_with_the_fitted_slope() -> None:
    """The median of what the processes found."""
    table = lengths({"linear": 1.1, "quadratic": 1.9}).sample(frac=1, random_state=0)
    axes = drawn("principle1_throughput", principle1_throughput=table).axes[0]
    assert wording(axes) == ("", "sequence length $L$", "milliseconds")
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    assert axes.xaxis.get_transform().base == 2
    found = marks(axes)
    guides = found.pop("#808080")
    ends = {}
    for form, words in (("linear", MAMBA.format("1.10")), ("quadratic", SOFTMAX.format("1.90"))):
        times = {n: the(table, "milliseconds", form=form, length=n, process=2) for n in LENGTHS}
        assert found.pop(words) == list(times.items())
        ends[form] = times[LENGTHS[-1]]
    assert not found
    assert guides[4::5] == [(LENGTHS[-1], end) for end in ends.values()]  # through the last point
    ratios = [guides[k + 1][1] / guides[k][1] for k in (0, 5)]
    assert ratios == pytest.approx([2, 4], rel=1e-4)  # slopes 1 and 2
    spans = [len(lines.get_segments()) for lines in axes.collections]
    assert spans == [len(LENGTHS)] * 2  # from the fastest to the slowest process
    colours = {MAMBA.format("1.10"): RED, SOFTMAX.format("1.90"): BLUE}
    assert legend(axes) == {label: (colour, "o-") for label, colour in colours.items()}


def test_p1_leaves_out_a_form_that_was_timed_once() -> None:
    table = lengths({"linear": 1.0, "quadratic": 2.0})
    twice = (table["form"] == "linear") & (table["length"] < 4096)
    once = table[twice | (table["length"] == 2048)]
    axes = drawn("principle1_throughput", principle1_throughput=once).axes[0]
    assert list(marks(axes)) == [MAMBA.format("1.00"), "#808080"]


STRUCTURES = {  # word -> the grey choice, the pink choice
    "scalar": ("scalar_gla", "scalar_mamba2"),
    "diagonal": ("diagonal_gla", "diagonal_mamba2"),
    "Householder,\n$k_t$": ("householder_key_fixed", "householder_key_learned"),
    "Householder,\n$z_t$": ("householder_free_fixed", "householder_free_learned"),
}


def test_p4_shows_both_choices_of_each_structure_their_mean_and_the_better() -> None:
    names = [name for pair in STRUCTURES.values() for name in pair]
    table = made_up(task=TASKS[:2], evolution=names)
    missing = (table["task"] == "selective_copying") & (table["evolution"] == "diagonal_gla")
    table = table[~missing]
    figure = drawn("principle4_evolution", principle4_evolution=table)
    for axes, task in zip(figure.axes, TASKS[:2], strict=True):
        rows = table[table["task"] == task].set_index("evolution")["accuracy"]
        pairs = [[rows.get(name) for name in pair] for pair in STRUCTURES.values()]
        both = [[value for value in pair if value is not None] for pair in pairs]
        assert marks(axes) == {
            "GLA / strength 2": [
                (x - 0.06, number(grey)) for x, (grey, _) in enumerate(pairs) if grey
            ],
            "Mamba-2 / learned": [(x + 0.06, number(pink)) for x, (_, pink) in enumerate(pairs)],
            "mean of both": [(x, number(np.mean(pair))) for x, pair in enumerate(both)],
            "better of both": [(x, number(max(pair))) for x, pair in enumerate(both)],
        }
        label = ACCURACY if task == "fuzzy_recall" else ""
        assert wording(axes) == (task.replace("_", " "), "", label)
        assert ticks(axes.xaxis) == dict(enumerate(STRUCTURES))
        assert axes.get_xlim() == pytest.approx((-0.4, 3.4))
        assert chance_is_marked(axes, task)
        assert looks_of(axes) == legend(figure) == {
            "GLA / strength 2": (GREY, "o"), "Mamba-2 / learned": (PINK, "o"),
            "mean of both": (BLUE, "-"), "better of both": (ORANGE, "-"),
        }  # fmt: skip


FAMILIES = {
    "softmax_attention": r"$\phi=e^s,\ A=I$",
    "relu_attention": r"$\phi=$relu$,\ A=I$",
    "mamba2": r"$\phi=$Id$,\ A_t=\lambda_t I$",
    "householder": r"$\phi=$Id$,\ A_t=I-\beta_t k_t k_t^\top$",
}
SCALINGS = {
    "inverse_sqrt": r"$1/\sqrt{n}$",
    "gate_inverse_sqrt": r"$z_j/\sqrt{n}$",
    "one": "$1$",
    "gate": "$z_j$",
}


@pytest.mark.parametrize("stem", ["principle5_scaling", "principle5_no_post_norm"])
def test_p5_shows_a_panel_per_design_and_b_with_its_mean_and_spread(stem: str) -> None:
    table = made_up(task=TASKS[:1], model=FAMILIES, scaling=SCALINGS, n_state=(16, 32, 64))
    left_out = (table["model"] == "mamba2") & table["scaling"].isin(["inverse_sqrt", "gate"])
    figure = drawn(stem, **{stem: table[~left_out]})
    panels = np.array(figure.axes).reshape(len(FAMILIES), len(SCALINGS))
    for line, (family, words) in zip(panels, FAMILIES.items(), strict=True):
        colour = looks.FAMILIES[family][1]
        for axes, (scaling, b) in zip(line, SCALINGS.items(), strict=True):
            title = f"$b_j=${b}" if family == "softmax_attention" else ""
            below = "head dimension" if family == "householder" else ""
            beside = words if scaling == "inverse_sqrt" else ""
            assert wording(axes) == (title, below, beside)
            assert chance_is_marked(axes, "fuzzy_recall", 0.02)
            if family == "mamba2" and scaling in ("inverse_sqrt", "gate"):
                same = scaling == "inverse_sqrt" and stem == "principle5_scaling"
                words = "one function\nwith $b_j=1$" if same else "not run"
                assert (words, 0.5, 0.5) in texts(axes)
                continue
            rows = {
                n // 4: {"model": family, "scaling": scaling, "n_state": n} for n in (16, 32, 64)
            }
            found = marks(axes)
            assert found["mean over seeds"] == [
                (x, the(table, "accuracy", **where)) for x, where in rows.items()
            ]
            ends = [(x, the(table, c, **where)) for x, where in rows.items()
                    for c in ("accuracy_min", "accuracy_max")]  # fmt: skip
            assert sorted(found[colour.upper()]) == sorted(ends)
    assert ticks(panels[-1, 0].xaxis) == {4: "4", 8: "8", 16: "16"}
    assert (panels[0, 0].get_xscale(), panels[0, 0].xaxis.get_transform().base) == ("log", 2)
