"""The demo's figure shows its runs, its conclusion follows from them, its page stands alone."""

import re

import pandas as pd
import pytest

from coefdyn.cli import main
from coefdyn.demo import READOUTS, best, conclusion, figure, page
from coefdyn.results.tables import RUN_COLUMNS

pytestmark = pytest.mark.long

NEAR_ZERO = {"exp": 0.3, "softplus": 0.4, "relu": 0.7, "identity": 0.1}
ACCURACY = {"exp": 0.8, "softplus": 0.85, "relu": 0.9, "identity": 0.5}


def table(accuracy: dict[str, float] = ACCURACY, noise: float = 0.01) -> pd.DataFrame:
    """Two learning rates, of which the second is better by 0.05."""
    rows = [
        {"scale": "lite", "task": "memorization", "readout": phi, "seed": seed, "lr": lr,
         "weight_decay": 0.0, "status": "finished", "chance": 0.1, "near_zero": NEAR_ZERO[phi],
         "accuracy": accuracy[phi] + noise * (seed - 1) - 0.05 * (lr < 0.01),
         "run_id": f"{phi}-{seed}-{lr:g}"}
        for phi in READOUTS
        for seed in (0, 1, 2)
        for lr in (0.003, 0.01)
    ]  # fmt: skip
    return pd.DataFrame(rows).reindex(columns=RUN_COLUMNS)


def test_each_seed_has_its_better_learning_rate() -> None:
    chosen = best(table())
    assert len(chosen) == 12
    assert set(chosen["lr"]) == {0.01}


def test_the_figure_has_a_mark_per_readout_and_a_dot_per_seed() -> None:
    (axes,) = figure(table()).axes
    marks = {line.get_label(): (*line.get_xdata(), *line.get_ydata()) for line in axes.lines
             if len(line.get_xdata()) == 1}  # fmt: skip
    assert marks["relu"] == (pytest.approx(0.7), pytest.approx(0.9))
    assert len(marks) == 4
    dots = [c.get_offsets() for c in axes.collections if len(c.get_offsets()) == 3]
    assert len(dots) == 4


def test_the_conclusion_follows_from_the_numbers() -> None:
    said = conclusion(table())
    # Welch by hand: two deviations of 0.01, three seeds: 0.4 +- 2.776 * 0.01 * sqrt(2/3)
    assert said[2] == "relu - identity: +0.400 (95 % interval +0.377 to +0.423): better."
    assert said[-1] == "That is what principle 2 expects."
    other = conclusion(table({**ACCURACY, "relu": 0.7}))
    assert "The upper end is not" in other[-1]
    assert "softplus the highest accuracy" in other[-2]
    turned = conclusion(table({**ACCURACY, "identity": 0.95}))
    assert turned[0].endswith("worse.")
    assert "not so here" in turned[-1]
    vague = conclusion(table({**ACCURACY, "identity": 0.79}, noise=0.1))
    assert vague[0].endswith("cannot be told apart by these seeds.")


def test_the_page_has_every_run_its_question_and_its_conclusion_and_needs_no_network() -> None:
    runs = table()
    runs.loc[0, ["status", "near_zero"]] = ["diverged", None]
    text = page(runs, figure(runs))
    for run_id in runs["run_id"]:
        assert run_id in text
    assert "Does the readout matter" in text
    assert "Principle 2" in text
    for sentence in conclusion(runs):
        assert sentence in text
    assert "24 runs, 3 seeds, scale <i>lite</i>" in text
    assert "diverged" in text
    assert not re.search(r"https?://|<script|<link", text)


def test_the_demo_runs_and_is_not_done_twice(
    tmp_path: object, capfd: pytest.CaptureFixture[str]
) -> None:
    given = ["demo", "scale=smoke", f"paths.results={tmp_path}"]
    assert main(given) == 0
    first = capfd.readouterr()
    assert first.err.count(" accuracy ") == 40
    assert main(given) == 0
    again = capfd.readouterr()
    assert " accuracy " not in again.err
    assert again.out == first.out
