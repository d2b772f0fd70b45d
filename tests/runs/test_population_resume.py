"""Populations that are killed, asked to end, or share their members with other processes."""

import signal
from pathlib import Path
from typing import Any

import pytest
from lightning.pytorch.utilities.exceptions import SIGTERMException

from coefdyn.config.grid import PlannedRun
from coefdyn.runs import checkpoint
from coefdyn.runs.lock import Lock, LockedError, LostLockError, locked
from coefdyn.runs.loop import Training
from coefdyn.runs.population.training import train_population
from coefdyn.runs.record import Record, read_record
from coefdyn.runs.run import run_one
from coefdyn.sweeps.worker import attempt
from tests.runs.populations import records, small
from tests.runs.runs import folder


class KilledError(Exception):
    pass


def test_a_population_goes_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed within an epoch, between two members' checkpoints, and asked to end."""
    plain = records(train_population(small(tmp_path / "plain")))
    often = small(tmp_path / "killed", "trainer.checkpoint_seconds=1e-9")
    step, save = Training.training_step, checkpoint.write_checkpoint

    def killed_at(number: int) -> Any:
        def fragile(self: Training, *given: Any) -> Any:
            if self.global_step + 1 == number:
                raise KilledError
            return step(self, *given)

        return fragile

    def interrupted(kind: Any, name: str, stand_in: Any, error: type[BaseException]) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(kind, name, stand_in)
            with pytest.raises(error):
                train_population(often)

    for number in (3, 6):
        interrupted(Training, "training_step", killed_at(number), KilledError)
    left = [6]  # of the four members' second checkpoint the first two

    def cut_short(*given: Any) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise KilledError
        save(*given)

    interrupted(checkpoint, "write_checkpoint", cut_short, KilledError)

    def asks(self: Training, *given: Any) -> Any:
        signal.raise_signal(signal.SIGTERM)
        return step(self, *given)

    interrupted(Training, "training_step", asks, SIGTERMException)
    for ours, wanted in zip(records(train_population(often)), plain, strict=True):
        assert ours.metrics == pytest.approx(wanted.metrics, rel=1e-5)
        assert len(ours.earlier_sessions) >= 3
        assert not (folder(tmp_path / "killed", ours) / "record.old.json").exists()


@pytest.mark.usefixtures("in_float64")
def test_a_member_can_go_on_alone_and_a_run_as_a_member(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have the same checkpoint: the last member of a population that was killed is a run
    alone to a sweep, and runs that were killed may be taken up as members."""
    plain = records(train_population(small(tmp_path / "plain")))
    step, taken = Training.training_step, []

    def killed_at(number: int) -> Any:
        def fragile(self: Training, *given: Any) -> Any:
            taken.append(self.global_step + 1)
            if taken[-1] == number:
                raise KilledError
            return step(self, *given)

        return fragile

    def first(run: Any, configs: Any, second: Any) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(Training, "training_step", killed_at(5))
            for config in configs:
                with pytest.raises(KilledError):
                    run(config)
        with monkeypatch.context() as patch:
            taken.clear()
            patch.setattr(Training, "training_step", killed_at(0))
            second()

    often = "trainer.checkpoint_seconds=1e-9"
    members, alone = (small(tmp_path / name, often) for name in ("members", "alone"))

    def last_member() -> None:
        for config in members:
            (outcome,) = attempt([PlannedRun(config.run_id, (), config.values, config.choices)])
            assert outcome.end == "done"
        assert taken == [*range(5, 13)] * 4

    first(train_population, [members], last_member)

    def all_at_once() -> None:
        train_population(alone)
        assert taken == [*range(5, 13)]

    first(run_one, alone, all_at_once)
    for results in ("members", "alone"):
        for wanted in plain:
            ours = read_record(folder(tmp_path / results, wanted) / "record.json")
            assert ours is not None
            assert ours.metrics == pytest.approx(wanted.metrics, rel=1e-9)


def test_one_member_of_a_population_can_be_elsewhere(tmp_path: Path) -> None:
    configs = small(tmp_path)
    name = configs[1].run_id
    with locked(tmp_path / "runs" / name):
        endings = train_population(configs)
    assert isinstance(endings[1], LockedError)
    assert [isinstance(ending, Record) for ending in endings] == [True, False, True, True]
    again = records(train_population(configs))
    assert again[1].population["members"] == 1


def test_a_member_that_was_taken_over_leaves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configs = small(tmp_path, "trainer.checkpoint_seconds=1e-9")
    lost, check, looks = configs[2].run_id, Lock.check, [0]

    def taken(self: Lock) -> None:
        looks[0] += self.path.parent.name == lost
        if self.path.parent.name == lost and looks[0] > 1:  # not while it is locked
            raise LostLockError("taken over")
        check(self)

    monkeypatch.setattr(Lock, "check", taken)
    endings = train_population(configs)
    assert isinstance(endings[2], LostLockError)
    assert [isinstance(ending, Record) for ending in endings] == [True, True, False, True]
    assert not (tmp_path / "runs" / lost / "record.json").exists()
