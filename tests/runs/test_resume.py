"""A run that was killed and started again ends as if nothing had happened, bit for bit."""

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from coefdyn.config.compose import Config
from coefdyn.runs import run
from coefdyn.runs.checkpoint import KeepProgress
from coefdyn.runs.loop import Training
from coefdyn.runs.record import CHECKPOINT, Record, read_record
from coefdyn.runs.run import run_one
from tests import SCRIPTS
from tests.runs.runs import smoke

EPOCHS, STEPS = 3, 4
SETTINGS = [
    "task.num_train=60",  # the last batch of an epoch is not full
    f"trainer.max_epochs={EPOCHS}",
    "optimizer.weight_decay=0.1",
    "trainer.clip=1.0",
]


class KilledError(BaseException):
    """As abrupt as a signal, for code that catches Exception."""


def config(results: Path, *more: str) -> Config:
    return smoke(results, *SETTINGS, *more)


def outcome(results: Path, record: Record) -> tuple[Any, ...]:
    directory = results / "runs" / record.run_id
    weights = torch.load(directory / CHECKPOINT, weights_only=True)["state_dict"]
    kept = {
        k: v
        for k, v in vars(record).items()
        if k not in ("seconds", "config", "git", "earlier_sessions")
    }
    return (
        kept,
        {k: v.tolist() for k, v in weights.items()},
        (directory / "metrics.csv").read_text(),
    )


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, ...]:
    results = tmp_path_factory.mktemp("undisturbed")
    torch.set_num_threads(1)
    return outcome(results, run_one(config(results)))


@pytest.mark.parametrize("seconds", ["1e-9", "1e9"], ids=["every step", "ends of epochs"])
@pytest.mark.parametrize("killed_after", range(1, EPOCHS * STEPS + 1))
def test_killed_after_any_step(
    killed_after: int,
    seconds: str,
    undisturbed: tuple[Any, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wanted = config(tmp_path, f"trainer.checkpoint_seconds={seconds}")
    save = KeepProgress.on_train_batch_end

    def killed(self: KeepProgress, trainer: Any, *arguments: Any) -> None:
        save(self, trainer, *arguments)
        if trainer.global_step == killed_after:
            raise KilledError

    with monkeypatch.context() as patch:
        patch.setattr(KeepProgress, "on_train_batch_end", killed)
        with pytest.raises(KilledError):
            run_one(wanted)
    assert outcome(tmp_path, run_one(wanted)) == undisturbed


def run_and_kill_after_one_epoch(wanted: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    save = KeepProgress.on_train_epoch_end

    def killed(self: KeepProgress, *arguments: Any) -> None:
        save(self, *arguments)
        raise KilledError

    with monkeypatch.context() as patch:
        patch.setattr(KeepProgress, "on_train_epoch_end", killed)
        with pytest.raises(KilledError):
            run_one(wanted)


def test_a_hybrid_of_three_kinds_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.set_num_threads(1)
    kinds = ["model.pattern=[mamba2,rope,deltaproduct]", "model.n_layers=3"]
    whole, parts = config(tmp_path / "whole", *kinds), config(tmp_path / "parts", *kinds)
    undisturbed = outcome(tmp_path / "whole", run_one(whole))
    run_and_kill_after_one_epoch(parts, monkeypatch)
    assert outcome(tmp_path / "parts", run_one(parts)) == undisturbed
    assert len(undisturbed[0]["coefficients"]["per_head"]["near_zero"]) == 3


def test_a_run_that_was_good_enough_before_the_kill_stops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = config(tmp_path, "trainer.stop_at=0.01")
    run_and_kill_after_one_epoch(wanted, monkeypatch)
    assert run_one(wanted).epochs == 1


def test_killed_inside_a_test_or_before_the_record(
    undisturbed: tuple[Any, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: Any) -> None:
        raise KilledError

    wanted = config(tmp_path)
    for place, name in ((Training, "validation_step"), (run, "coefficient_statistics")):
        with monkeypatch.context() as patch:
            patch.setattr(place, name, killed)
            with pytest.raises(KilledError):
                run_one(wanted)
    record = run_one(wanted)
    assert outcome(tmp_path, record) == undisturbed
    assert len(record.earlier_sessions) == 1  # the first one left no checkpoint


def test_a_forced_run_that_was_killed_goes_on(
    undisturbed: tuple[Any, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_one(config(tmp_path))
    wanted = config(tmp_path, "force=true")
    run_and_kill_after_one_epoch(wanted, monkeypatch)
    record = run_one(wanted)
    assert outcome(tmp_path, record) == undisturbed
    assert len(record.earlier_sessions) == 1


def test_a_polite_end_saves_and_is_not_a_success(tmp_path: Path) -> None:
    overrides = ["trainer.max_epochs=100000", "trainer.checkpoint_seconds=1e9"]
    wanted = config(tmp_path, *overrides)
    command = [
        sys.executable, str(SCRIPTS / "train.py"), "scale=smoke", *SETTINGS,
        *overrides, f"paths.results={tmp_path}",
    ]  # fmt: skip
    checkpoint = tmp_path / "runs" / wanted.run_id / CHECKPOINT
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while not checkpoint.exists() and process.poll() is None:
        time.sleep(0.01)
    process.terminate()
    assert process.wait(timeout=60) == 143
    assert not checkpoint.with_name("record.json").exists()


@pytest.mark.slow
def test_kill_9_at_several_moments(tmp_path: Path) -> None:
    """The real thing: a process that gets no chance to tidy up, three times over."""
    overrides = ["trainer.max_epochs=60", "trainer.devices.threads=1"]
    killed, whole = (config(tmp_path / name, *overrides) for name in ("killed", "whole"))
    command = [
        sys.executable, str(SCRIPTS / "train.py"), "scale=smoke", *SETTINGS,
        *overrides, f"paths.results={tmp_path / 'killed'}", "trainer.checkpoint_seconds=0.01",
    ]  # fmt: skip
    directory = tmp_path / "killed" / "runs" / killed.run_id
    for wait in (0.0, 0.07, 0.23):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        before = _changed(directory / CHECKPOINT)
        while _changed(directory / CHECKPOINT) == before and process.poll() is None:
            time.sleep(0.005)
        time.sleep(wait)
        process.kill()
        process.wait()
        assert not (directory / "record.json").exists()
    subprocess.run(command, check=True, capture_output=True)
    record = read_record(directory / "record.json")
    assert record is not None
    assert outcome(tmp_path / "killed", record) == outcome(tmp_path / "whole", run_one(whole))


def _changed(path: Path) -> float:
    return path.stat().st_mtime_ns if path.exists() else 0
