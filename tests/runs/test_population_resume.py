"""Populations that are killed, asked to end, or share their members with other processes."""

import signal
from pathlib import Path
from typing import Any

import pytest
from lightning.pytorch.utilities.exceptions import SIGTERMException

from coefdyn.config.grid import PlannedRun
from coefdyn.runs.lock import Lock, LockedError, LostLockError, locked
from coefdyn.runs.population.member import Member
from coefdyn.runs.population.stacked import Stack
from coefdyn.runs.population.training import train_population
from coefdyn.runs.record import Record, read_record
from coefdyn.sweeps.worker import attempt
from tests.runs.populations import records, small
from tests.runs.runs import folder


class KilledError(Exception):
    pass


def test_a_population_goes_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed within an epoch, between two members' checkpoints, and asked to end."""
    plain = records(train_population(small(tmp_path / "plain")))
    often = small(tmp_path / "killed", "trainer.checkpoint_seconds=1e-9")
    step, save = Stack.step, Member.save

    def killed_at(number: int) -> Any:
        def fragile(self: Stack, inputs: Any, targets: Any, at: int, factor: float) -> Any:
            if at == number:
                raise KilledError
            return step(self, inputs, targets, at, factor)

        return fragile

    def interrupted(kind: type, name: str, stand_in: Any, error: type[BaseException]) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(kind, name, stand_in)
            with pytest.raises(error):
                train_population(often)

    for number in (3, 6):
        interrupted(Stack, "step", killed_at(number), KilledError)
    left = [6]  # of the four members' second checkpoint the first two

    def cut_short(self: Member, *state: Any) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise KilledError
        save(self, *state)

    interrupted(Member, "save", cut_short, KilledError)

    def asks(self: Stack, *given: Any) -> Any:
        signal.raise_signal(signal.SIGTERM)
        return step(self, *given)

    interrupted(Stack, "step", asks, SIGTERMException)
    for ours, wanted in zip(records(train_population(often)), plain, strict=True):
        assert ours.metrics == pytest.approx(wanted.metrics, rel=1e-5)
        assert len(ours.earlier_sessions) >= 3
        assert not (folder(tmp_path / "killed", ours) / "record.old.json").exists()


def test_the_last_member_of_a_population_goes_on_from_its_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others are recorded, so that the executor has a group of one."""
    plain = records(train_population(small(tmp_path / "plain")))
    configs = small(tmp_path / "ended", "trainer.checkpoint_seconds=1e-9")
    step, steps = Stack.step, []

    def counted(self: Stack, *given: Any) -> Any:
        steps.append(given[2])
        if steps == [1, 2, 3, 4, 5]:
            raise KilledError
        return step(self, *given)

    monkeypatch.setattr(Stack, "step", counted)
    with pytest.raises(KilledError):
        train_population(configs)
    records(train_population(configs[:-1]))
    (config, steps[:]) = configs[-1], []
    (outcome,) = attempt([PlannedRun(config.run_id, (), config.values, config.choices)])
    assert outcome.end == "done"
    assert steps == list(range(5, 13))
    ours = read_record(tmp_path / "ended" / "runs" / config.run_id / "record.json")
    assert ours is not None
    assert ours.metrics == pytest.approx(plain[-1].metrics, rel=1e-5)


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
