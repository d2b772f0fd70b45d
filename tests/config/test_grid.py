"""How a grid becomes runs. Which grids there are, test_paper_values.py says."""

import random
import shutil
from pathlib import Path

import pytest

from coefdyn.config import compose as composing
from coefdyn.config import plugins
from coefdyn.config.compose import Config, compose
from coefdyn.config.grid import plan
from coefdyn.config.multirun import multirun, sweep_points
from coefdyn.config.plugins import options
from coefdyn.errors import ConfigError

# Whose designs others have too: shared runs, the same with a norm, presets that tests train.
ALIKE = ("principle2_2_zeros", "principle5_no_post_norm", "principle6_no_post_norm",
         "architectures", "open_choices", "principle2_2_length",
         # planned by test_own_experiments.py
         "state_tracking", "position_lengths", "mqar_frontier", "hybrids",
         "mad_benchmark", "mad_switches")  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize(
    "experiment",
    [pytest.param(n, marks=[pytest.mark.slow] * (n in ALIKE)) for n in options("experiment")],
)
def test_every_design_of_an_experiment_can_be_built(experiment: str) -> None:
    asked = [f"experiment={experiment}", "scale=smoke", "seed=0"]  # another seed, the same design
    assert len(plan(asked)) == len(sweep_points(asked))


@pytest.mark.parametrize("experiment", ["principle5_no_post_norm"])
def test_names_equal_those_of_naive_composition(experiment: str) -> None:
    runs = plan([f"experiment={experiment}", "scale=lite", "seed=3"])
    for run in random.Random(0).sample(runs, 6):
        naive = compose(run.point)
        assert naive.run_id == run.run_id
        assert naive.values == run.values


@pytest.mark.parametrize(
    "axis",
    [
        "trainer.devices={accelerator:cpu},{threads:2}",
        "scale.noisy_recall.model={d_model:16},{d_model:32}",
        "+optimizer.amsgrad=true,false",
        "optimizer.betas=[0.9,0.95],[0.8,0.9]",
    ],
)
def test_any_override_that_hydra_takes_can_be_an_axis(axis: str) -> None:
    runs = plan(["scale=smoke", axis, "seed=0,1"])
    for run in runs:
        naive = compose(run.point)
        assert (naive.run_id, naive.values) == (run.run_id, run.values)
    assert len(runs) in (2, 4)  # devices are no part of a run


def test_hydra_s_own_multirun_has_the_same_runs() -> None:
    names: list[str] = []

    def collect(config: Config) -> int:
        names.append(config.run_id)
        return 0

    overrides = ["experiment=principle2_2_zeros", "scale=smoke", "seed=0,1"]
    assert multirun(["-m", *overrides], collect) == 0
    assert names == [run.run_id for run in plan(overrides)]
    assert len(names) == 8


def test_experiments_share_their_runs() -> None:
    kernels, zeros = (
        {run.run_id for run in plan([f"experiment={name}", "scale=smoke"])}
        for name in ("principle2_1_kernel", "principle2_2_zeros")
    )
    assert zeros < kernels


def test_the_command_line_wins_over_the_grid() -> None:
    runs = plan(["experiment=principle2_readout", "scale=smoke", "model/readout=relu", "seed=1,2"])
    assert len(runs) == 6
    assert {run.config.settings.seed for run in runs} == {1, 2}
    assert {run.config.choices["model/readout"] for run in runs} == {"relu"}


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["experiment=principle7"], ["experiment/principle7", "principle2_readout"]),
        (["experiment=principle2_readout", "model/readout=exp,softmax"], ["softmax"]),
        (["experiment=principle2_readout", "optimizer.rate=1,2"], ["optimizer.rate"]),
        (["model/scaling=one,step_size"], ["model/scaling=step_size", "scalar_mamba2"]),
        (["optimizer.lr=range(1,3"], ["range(1,3"]),
        (["experiment=principle2_readout,architectures"], ["experiment takes one name"]),
    ],
)
def test_a_grid_that_cannot_run_says_so(overrides: list[str], words: list[str]) -> None:
    with pytest.raises(ConfigError) as error:
        plan(overrides)
    assert "\n" not in str(error.value)
    for word in words:
        assert word in str(error.value)


@pytest.mark.parametrize(
    ("line", "typo", "words"),
    [
        ("model:\n  n_heads", "modle:\n  n_heads", ["modle"]),
        ("model:\n  n_heads", "model:\n  n_head", ["n_head"]),
        ("model.n_state:", "model.n_stat:", ["n_stat"]),
        ("model/scaling:", "model/scalings:", ["model/scalings"]),
        ("gate_inverse_sqrt,one", "gate_inverse_sqr,one", ["gate_inverse_sqr", "inverse_sqrt"]),
        ("grid.${scale.name}.lr}", "grid.${scale.name}.rate}", ["grid.smoke.rate"]),
        ("override /task: fuzzy_recall", "override /tasks: fuzzy_recall", ["tasks"]),
    ],
)
def test_a_typo_in_an_experiment_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, typo: str, words: list[str]
) -> None:
    copied = tmp_path / "conf"
    shutil.copytree(plugins.CONF, copied)
    file = copied / "experiment" / "principle5_scaling.yaml"
    assert line in file.read_text()
    file.write_text(file.read_text().replace(line, typo))
    monkeypatch.setattr(composing, "CONF", copied)
    for place in (composing, plugins):
        monkeypatch.setattr(place, "conf_directories", lambda _: (copied,))
    with pytest.raises(ConfigError) as error:
        plan(["experiment=principle5_scaling", "scale=smoke"])
    assert "\n" not in str(error.value)
    for word in words:
        assert word in str(error.value)


def test_points_can_be_left_out_of_a_grid() -> None:
    left = plan(["experiment=principle5_scaling", "scale=lite"])
    relu = {(run.choices["model/scaling"], run.values["model"]["n_state"])
            for run in left if run.choices["model"] == "relu_attention"}  # fmt: skip
    assert relu == {("one", 64), ("one", 256), ("inverse_sqrt", 64)}


def test_what_is_left_out_must_be_in_the_grid() -> None:
    given = ["experiment=principle5_scaling", "scale=smoke"]
    with pytest.raises(
        ConfigError, match="leave_out has model=relu, which no point of the grid has"
    ):
        sweep_points([*given, "+grid.smoke.leave_out=['model=relu']"])
    with pytest.raises(
        ConfigError, match="leave_out has modle=gla, which no point of the grid has"
    ):
        sweep_points([*given, "+grid.smoke.leave_out=['modle=gla']"])
    fewer = sweep_points([*given, "+grid.smoke.leave_out=['model=mamba2 model/scaling=one']"])
    assert len(fewer) == len(sweep_points(given)) - 6
    given = ["experiment=principle2_readout", "scale=paper"]
    fewer = sweep_points([*given, "+grid.paper.leave_out=['optimizer.lr=1e-3']"])
    assert len(fewer) == len(sweep_points(given)) * 4 / 5  # 0.001, as the sweeper writes it


def test_a_grid_may_be_narrowed_to_what_is_not_left_out() -> None:
    given = ["experiment=principle5_scaling", "scale=lite", "model=softmax_attention"]
    assert len(sweep_points(given)) == 4 * 3 * 3
