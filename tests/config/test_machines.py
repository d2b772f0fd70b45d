"""A machine in one word: it sets keys of runs and of sweeps, and never what a run computes."""

from pathlib import Path
from typing import Any

import pytest

from coefdyn.cli import main
from coefdyn.cli import sweep as sweeping
from coefdyn.cli.keys import own_keys
from coefdyn.config.compose import Config, compose
from coefdyn.config.grid import PlannedRun, plan
from coefdyn.config.machine import sweep_keys
from coefdyn.config.multirun import multirun, sweep_points
from coefdyn.config.plugins import options
from coefdyn.config.schema import Sweep
from tests.config.composed import composed
from tests.docs.pages import ROOT, blocks_of

MACHINES, EXPERIMENTS = options("machine"), options("experiment")
SMALL = ["scale=smoke", "task=noisy_recall"]
# Written by hand: what each may set of a run, and that of the keys of sweeps.
GPU = {"trainer.precision": "bf16-mixed", "trainer.devices.accelerator": "cuda"}
OF_RUNS: dict[str, dict[str, Any]] = {
    "laptop": {"population.mode": "auto"},
    "one_gpu": {"population.mode": "auto", **GPU},
    "eight_gpus": {"population.mode": "auto", **GPU},
    "slurm": {"population.mode": "auto", **GPU},
}
OF_SWEEPS: dict[str, dict[str, Any]] = {
    "laptop": {"jobs": 2},
    "one_gpu": {"jobs": 2},
    "eight_gpus": {"jobs": 16},
    "slurm": {
        "where": "slurm",
        "slurm.gpus": 1,
        "slurm.cpus": 4,
        "slurm.mem": "16G",
        "slurm.pack": 16,
        "slurm.jobs": 2,
    },
}


def flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    leaves: dict[str, Any] = {}
    for key, value in values.items():
        name = f"{prefix}{key}"
        leaves |= flat(value, f"{name}.") if isinstance(value, dict) and value else {name: value}
    return leaves


def difference(base: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """The leaves of `other` that `base` has not, or not so; both have the same keys."""
    before, after = flat(base), flat(other)
    assert before.keys() == after.keys()
    return {key: value for key, value in after.items() if value != before[key]}


def keys_of_a_sweep(*arguments: str) -> Sweep:
    return own_keys(Sweep, "sweep", arguments, sweep_keys(arguments))[0]


def test_every_machine_is_described_here_and_in_the_docs() -> None:
    assert sorted(OF_RUNS) == sorted(OF_SWEEPS) == MACHINES
    page = (ROOT / "docs" / "sweeps.md").read_text()
    rows = [line for line in page.splitlines() if line.startswith("| `machine=")]
    assert [row.split("`")[1].removeprefix("machine=") for row in rows] == [
        "laptop", "one_gpu", "eight_gpus", "slurm"
    ]  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("experiment", EXPERIMENTS)
@pytest.mark.parametrize("machine", MACHINES)
def test_a_machine_changes_where_an_experiment_runs_and_nothing_else(
    machine: str, experiment: str
) -> None:
    """In full precision its run_id is that of no machine."""
    chosen = f"experiment={experiment} scale=smoke"
    base, there = composed(chosen), composed(f"{chosen} machine={machine}")
    assert there.settings.population.mode == "auto"
    assert difference(base.values, there.values) == OF_RUNS[machine]
    precise = there.with_values({"trainer.precision": base.values["trainer"]["precision"]})
    assert precise.run_id == base.run_id
    keeps_precision = "trainer.precision" not in OF_RUNS[machine]
    assert (there.run_id == base.run_id) == keeps_precision


@pytest.mark.parametrize("machine", MACHINES)
def test_the_grid_of_an_experiment_is_the_same_on_every_machine(machine: str) -> None:
    chosen = ["experiment=principle2_2_zeros", "scale=smoke"]
    there = sweep_points([*chosen, f"machine={machine}"])
    assert [set(p) - {f"machine={machine}"} for p in there] == list(map(set, sweep_points(chosen)))


@pytest.mark.parametrize("machine", MACHINES)
def test_a_machine_sets_keys_of_sweeps(machine: str) -> None:
    plain, there = compose([], "sweep").values, compose(sweep_keys([f"machine={machine}"]), "sweep")
    assert difference(plain, there.values) == OF_SWEEPS[machine]
    assert keys_of_a_sweep(f"machine={machine}").action == "plan"


def test_without_a_machine_everything_is_as_before() -> None:
    assert sweep_keys(["experiment=principle2_readout", "jobs=3"]) == []
    assert compose().choices["machine"] == "None"
    assert "sweep" not in compose().values


def test_full_precision_on_a_gpu_is_the_run_of_a_laptop() -> None:
    ids = {compose([*SMALL, f"machine={m}", "trainer.precision=fp32"]).run_id for m in MACHINES}
    assert ids == {compose(SMALL).run_id}
    ids = {compose([*SMALL, f"machine={m}"]).run_id for m in MACHINES if m != "laptop"}
    assert ids == {compose([*SMALL, "trainer=cuda"]).run_id}


@pytest.mark.parametrize("place", [0, 1])
def test_the_command_line_wins_over_a_machine(place: int) -> None:
    """Before or behind it."""
    typed = ["trainer=cpu", "population.mode=sequential"]
    typed[place:place] = ["machine=eight_gpus"]
    config = compose([*SMALL, *typed])
    assert config.choices["trainer"] == "cpu"
    assert config.values == compose(SMALL).values
    for words in (["jobs=3", "slurm.gpus=2"], ["jobs=3", "slurm={gpus:2}"]):
        words[place:place] = ["machine=slurm"]
        keys = keys_of_a_sweep(*words)
        assert (keys.jobs, keys.slurm.gpus, keys.slurm.pack) == (3, 2, 16)


def test_every_way_to_compose_a_run_knows_machines() -> None:
    given = [*SMALL, "machine=laptop", "seed=0,1"]
    planned, configs = plan(given), []

    def collect(config: Config) -> int:
        configs.append(config)
        return 0

    assert multirun(["-m", *given], collect) == 0
    assert [config.run_id for config in configs] == [run.run_id for run in planned]
    assert [config.values for config in configs] == [run.values for run in planned]
    assert {config.choices["machine"] for config in configs} == {"laptop"}
    assert planned[0].run_id == compose([*SMALL, "seed=0"]).run_id


def test_a_sweep_has_the_workers_of_its_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    workers: list[int] = []

    def note(runs: list[PlannedRun], jobs: int, _: object) -> None:
        assert len(runs) == 2
        workers.append(jobs)

    monkeypatch.setattr(sweeping, "run_all", note)
    grid = ["sweep", *SMALL, "seed=0,1", f"paths.results={tmp_path}", "action=run"]
    for more in (["machine=eight_gpus"], ["machine=eight_gpus", "jobs=5"], []):
        assert main([*grid, *more]) == 1  # nothing was trained
    assert workers == [16, 5, 1]
    capsys.readouterr()


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("train machine=tpu", ["machine/tpu", *MACHINES]),
        ("train -m machine=tpu", ["machine/tpu", *MACHINES]),
        ("sweep machine=tpu", ["machine/tpu", *MACHINES]),
        ("train machin=laptop", ["machin is no key", "did you mean machine=laptop?"]),
        ("sweep machine=laptop,one_gpu", ["a sweep takes one machine"]),
        ("sweep machine=one_gpu sweep.jobs=3", ["sweep.jobs is no key", "did you mean jobs=3?"]),
        ("train machine=one_gpu sweep.jobs=3", ["sweep.jobs is no key"]),
    ],
)
def test_a_wrong_machine_gets_one_sentence(
    line: str, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    command, *rest = line.split()
    assert main([command, *rest, *SMALL]) == 1
    assert_one_sentence(capsys, words)


def assert_one_sentence(capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("error: ")
    assert printed.err.count("\n") == 1
    for word in words:
        assert word in printed.err


@pytest.fixture
def plugin(tmp_path: Path) -> Path:
    """A directory whose machines are the user's own."""
    (tmp_path / "conf" / "machine").mkdir(parents=True)
    return tmp_path


def write(plugin: Path, text: str) -> list[str]:
    text = text if "@package" in text else f"# @package _global_\n{text}"
    (plugin / "conf" / "machine" / "ours.yaml").write_text(text)
    return [*SMALL, f"plugins=[{plugin}]", "machine=ours"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("sweep: {job: 2}", ["machine=ours, in its section sweep: job is", "did you mean jobs=2?"]),
        ("sweep: {slurm: {gpu: 1}}", ["slurm.gpu is no key", "did you mean slurm.gpus=1?"]),
        ("sweep: {jobs: two}", ["machine=ours", "jobs=two must be a whole number"]),
        ("sweep: {slurm: 3}", ["machine=ours", "slurm=3 must be a section"]),
        ("sweep: 3", ["machine=ours", "3 is no section with keys"]),
        ("sweep: []", ["machine=ours", "[] is no section with keys"]),
        ("jobs: 2", ["does not know: jobs"]),
        ("# A machine\n# @package _global_\nsweep: {jobs: 2}", ["must begin with the line # @pac"]),
    ],
)
def test_a_file_with_an_unknown_key_or_a_wrong_value_is_refused(
    plugin: Path, text: str, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["sweep", *write(plugin, text)]) == 1
    assert_one_sentence(capsys, words)


def test_a_cluster_of_your_own_is_a_file_of_a_plugin(plugin: Path) -> None:
    odd = """it's "ours", mostly"""
    text = """
defaults: [slurm, _self_]
sweep:
  slurm:
    partition: gpu
    account: it's "ours", mostly
    time: null
    extra: ["--qos=a,b", --x]
"""
    given = write(plugin, text)
    keys = keys_of_a_sweep(*given)
    assert (keys.slurm.partition, keys.slurm.account, keys.slurm.time) == ("gpu", odd, None)
    assert keys.slurm.extra == ["--qos=a,b", "--x"]
    assert (keys.where, keys.slurm.pack) == ("slurm", 16)  # inherited
    assert compose(given).choices["trainer"] == "cuda"


def test_the_cluster_of_the_docs_is_one(plugin: Path) -> None:
    blocks = [block.text for block in blocks_of(ROOT / "docs" / "sweeps.md")]
    (text,) = [block for block in blocks if "our_cluster.yaml" in block]
    keys = keys_of_a_sweep(*write(plugin, text)).slurm
    assert (keys.partition, keys.account, keys.gpus) == ("gpu", "our_group", 1)
    assert keys.extra == ["--constraint=a100"]
