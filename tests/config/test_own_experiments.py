"""Our own experiments have the grids that tests/config/own.py says."""

import pytest

from coefdyn.config.compose import compose
from coefdyn.config.grid import Planner
from coefdyn.config.multirun import sweep_points
from coefdyn.config.plugins import CONF
from coefdyn.results.rounds import rule_of
from tests.config.composed import plain
from tests.config.own import AXES, COUNTS, FIXED, OURS
from tests.config.test_paper_values import in_force


@pytest.mark.parametrize("experiment", OURS)
def test_what_varies_and_what_all_runs_share(experiment: str) -> None:
    points = sweep_points([f"experiment={experiment}", "scale=lite"])
    found: dict[str, dict[str, None]] = {}
    for point in points:
        for part in point:
            key, _, value = part.partition("=")
            found.setdefault(key, {})[value] = None
    varied = {k: v for k, v in found.items() if k in AXES[experiment]}
    left_out = {"alibi", "fox", "wall", "path", "path_fox", "deltaproduct", "deltanet_signed"}
    expected = {
        key: [v for v in values.split() if experiment != "mqar_frontier" or v not in left_out]
        for key, values in AXES[experiment].items()
    }
    assert {key: list(values) for key, values in varied.items()} == expected
    row = FIXED[experiment]
    assert in_force(compose([f"experiment={experiment}", "scale=lite"]), row) == row


@pytest.mark.long
@pytest.mark.parametrize("experiment", OURS)
def test_the_head_of_its_file_counts_its_runs(experiment: str) -> None:
    """At paper scale and smoke from the grid, at lite from the plan: every model can be built."""
    text = (CONF / "experiment" / f"{experiment}.yaml").read_text()
    (paper, _), (pilots, seeds), (smoke, _) = COUNTS[experiment].values()
    words = f"# Runs: {paper} at paper scale, {pilots} pilots + {seeds} at lite, {smoke} at smoke."
    assert words in text
    for scale, (count, _) in COUNTS[experiment].items():
        assert len(sweep_points([f"experiment={experiment}", f"scale={scale}"])) == count
    runs = Planner([f"experiment={experiment}", "scale=lite"]).declared
    assert len(runs) == pilots
    rule = rule_of(runs[0])
    rates = len(plain(CONF / "experiment" / f"{experiment}.yaml")["grid"]["lite"]["lr"].split(","))
    assert rule is not None
    assert rule[0] * pilots // rates == seeds


def test_lengths_are_twice_and_four_times_the_trained_one() -> None:
    for experiment, tasks in (
        ("state_tracking", ("parity", "word_z60", "word_s3", "word_s5")),
        ("position_lengths", ("noisy_recall", "copy")),
    ):
        for scale in ("paper", "lite", "smoke"):
            for task in tasks:
                made = compose([f"experiment={experiment}", f"task={task}", f"scale={scale}"])
                length = made.values["task"]["seq_len"]
                assert made.values["task"]["test_lengths"] == [2 * length, 4 * length]
                if experiment == "position_lengths":
                    assert made.values["model"]["max_length"] >= 4 * length
