"""The MAD benchmark's scores, and what habits of scoring and training add to them."""

import numpy as np
import pandas as pd
import pytest

from coefdyn.errors import ConfigError
from coefdyn.paper.ours import mad_benchmark, mad_switches
from coefdyn.paper.ours.mad_switches import AVERAGE, SWITCHES, TASKS, differences


def points() -> pd.DataFrame:
    """Two architectures, two tasks; one of three settings of recall is missing for the second."""
    rows = [
        ["lite", model, task, length, accuracy, accuracy / 2]
        for model, gain in (("gla", 0.1), ("mamba2", 0.0))
        for task, length, accuracy in (
            ("memorization", 8, 0.4 + gain), ("in_context_recall", 8, 0.8 + gain),
            ("in_context_recall", 16, 0.6 + gain), ("in_context_recall", 32, 0.1 + gain),
        )
        if (model, length) != ("mamba2", 32)
    ]  # fmt: skip
    columns = ["scale", "model", "task", "seq_len", "accuracy", "accuracy_macro"]
    return pd.DataFrame(rows, columns=columns)


def test_a_score_is_the_mean_of_the_macro_accuracy_over_settings() -> None:
    table = mad_benchmark.scores(points(), {}).set_index(["model", "task"])
    recall = table.loc[("gla", "in_context_recall")]
    assert recall["settings"] == 3
    assert recall["score"] == pytest.approx((0.9 + 0.7 + 0.2) / 3 / 2)
    assert recall["score_micro"] == pytest.approx((0.9 + 0.7 + 0.2) / 3)


def test_an_architecture_that_lacks_a_setting_has_no_score_of_that_task_in_the_figure() -> None:
    """Without the hard settings a mean would look better than that of others."""
    tables = {mad_benchmark.SCORES: mad_benchmark.scores(points(), {})}
    axes, _ = mad_benchmark.draw(tables).axes
    shown = pd.DataFrame(axes.images[0].get_array().filled(np.nan))
    assert [label.get_text() for label in axes.get_yticklabels()] == ["GLA", "Mamba-2"]
    assert shown.iloc[0].tolist() == pytest.approx([0.25, 0.3, 0.275])
    assert shown.iloc[1, 0] == pytest.approx(0.2)
    assert shown.iloc[1, 1:].isna().all()


def switches(readings: dict[str, float]) -> dict[str, pd.DataFrame]:
    """Runs whose accuracy under a reading is 0.5 and what the reading adds; macro is 0.1 less."""
    rows = [
        [task, reading, seed, 0.5 + added + noise, 0.4 + added + noise, 0.6 + added + noise]
        for task in TASKS
        for reading, added in readings.items()
        for seed, noise in enumerate((-0.01, 0.0, 0.01))
    ]
    columns = ["task", "reading", "seed", "accuracy", "accuracy_macro", "accuracy_best"]
    return {f"{mad_switches.STEM}_runs": pd.DataFrame(rows, columns=columns)}


def test_differences_of_columns_are_paired_and_those_of_readings_are_not() -> None:
    found = differences(switches({"as_built": 0.0, "constant_rate": -0.2}))
    assert set(found["switch"]) == set(list(SWITCHES)[:3])  # the others have no runs
    table = found.set_index(["switch", "task"])
    macro, _, constant, *_ = SWITCHES
    paired = table.loc[(macro, "memorization")]
    assert paired["difference"] == pytest.approx(-0.1)
    assert paired["high"] - paired["low"] == pytest.approx(0.0, abs=1e-9)  # noise is the run's
    apart = table.loc[(constant, "memorization")]
    assert apart["difference"] == pytest.approx(-0.2)
    half = 2.776445 * 0.01 * (2 / 3) ** 0.5  # t with 4 degrees of freedom, two means of three
    assert (apart["high"] - apart["low"]) / 2 == pytest.approx(half, rel=1e-5)
    average = table.loc[(constant, AVERAGE)]
    assert average["difference"] == pytest.approx(-0.2)
    assert average["high"] - average["low"] < apart["high"] - apart["low"]


def test_the_figure_shows_each_difference_and_what_cannot_be_compared_is_said() -> None:
    tables = switches({"as_built": 0.0, "constant_rate": -0.2, "torch_betas": 0.0})
    above, below = mad_switches.draw(tables).axes
    assert len(above.texts) == 4 * (len(TASKS) + 1)
    assert above.texts[0].get_text().startswith("-0.100")
    told = {text.get_text().split("\n")[0]: text.get_fontweight() for text in above.texts}
    assert told["-0.200"] == "bold"
    assert told["+0.000"] == "normal"
    assert len(below.lines) == 2 + len(TASKS)
    runs = tables[f"{mad_switches.STEM}_runs"]
    with pytest.raises(ConfigError, match="one reading"):
        differences({f"{mad_switches.STEM}_runs": runs.drop(columns="reading")})
    with pytest.raises(ConfigError, match="no task has two seeds"):
        differences({f"{mad_switches.STEM}_runs": runs[runs["seed"] == 0]})
