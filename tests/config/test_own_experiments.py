"""Our own experiments have the grids that tests/config/own.py says."""

import pytest

from coefdyn.config.compose import compose
from coefdyn.config.grid import Planner
from coefdyn.config.multirun import sweep_points
from coefdyn.config.plugins import CONF
from coefdyn.results.rounds import rule_of
from tests.config.composed import plain
from tests.config.own import AXES, COUNTS, FIXED, MAD, OURS
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


def test_the_mad_benchmark_has_the_original_s_settings() -> None:
    fixed = ["experiment=mad_benchmark", "scale=paper", "model=mamba2", "optimizer.lr=1e-3"]
    runs = Planner([*fixed, "optimizer.weight_decay=0"]).declared
    settings = [
        (task, baseline | change)
        for task, (baseline, changes) in MAD.items()
        for change in [{}, *({name: v} for name, values in changes.items() for v in values)]
    ]
    assert len(settings) == len(runs) == 66
    found = [
        (
            run.choices["task"],
            {name: run.values["task"][name] for name in MAD[run.choices["task"]][0]},
        )
        for run in runs
    ]
    assert sorted(found, key=str) == sorted(settings, key=str)


@pytest.mark.parametrize(
    ("experiment", "counts"),
    [
        ("mad_benchmark", {"paper": 8316, "lite": 80, "smoke": 12}),
        ("mad_switches", {"paper": 72, "lite": 72, "smoke": 36}),
    ],
)
def test_grids_without_pilots_have_the_runs_that_their_head_counts(
    experiment: str, counts: dict[str, int]
) -> None:
    text = (CONF / "experiment" / f"{experiment}.yaml").read_text()
    for scale, count in counts.items():
        assert len(sweep_points([f"experiment={experiment}", f"scale={scale}"])) == count
        assert f"{count} at " in text


def test_a_part_is_a_grid_of_its_file_or_of_the_experiment_it_names() -> None:
    """Of its own file, it has what that file varies; from the command line, one value is left."""
    asked = ["experiment=mad_benchmark", "scale=smoke"]
    points = sweep_points(asked)
    assert {p.partition("=")[2] for point in points for p in point if p.startswith("model=")} == {
        "softmax_attention", "mamba2"
    }  # fmt: skip
    runs = Planner([*asked, "model=gla"]).declared
    assert [run.choices["model"] for run in runs] == ["gla"] * (len(points) // 2)
    foreign = sweep_points(["experiment=open_choices", "scale=smoke"])
    assert not any("experiment=open_choices" in point for point in foreign)
