"""Runs that differ in learning rate, weight decay and seed only, trained at once.

Their parameters are stacked, a row per member, and one step of all is one pass under
torch.func.vmap: where a model is so small that launching operations is what costs, ten members take
little longer than one. Each gets the record that its own run would have given. A member that
diverges or reaches `stop_at` leaves the stack; the others go on unchanged.
"""

import contextlib
import itertools
import logging
import signal
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch.utilities.exceptions import SIGTERMException

from coefdyn.config.compose import Config
from coefdyn.errors import ConfigError
from coefdyn.model.model import mixers_of
from coefdyn.runs.lock import LockedError, LostLockError
from coefdyn.runs.loop import CHECK_EVERY, LARGEST_LOSS, Scores, cosine
from coefdyn.runs.population.fusing import family, is_fused
from coefdyn.runs.population.member import Member, MemberBatches, join, share_data, stack_of
from coefdyn.runs.record import Record, Row, write_history
from coefdyn.runs.run import Trained, folder_of, leave, make_record, run_one
from coefdyn.tasks.task import IGNORE

log = logging.getLogger(__name__)

Ending = Record | Exception  # a record, or why there is none


def train_population(configs: Sequence[Config]) -> list[Ending]:
    """What became of each run, in the order given; what is recorded already is not done again."""
    directories = [folder_of(config) for config in configs]
    if len({family(config) for config in configs}) > 1:
        raise ConfigError(
            "the members of a population differ in optimizer.lr, optimizer.weight_decay and seed "
            "only; these differ in more"
        )
    if len(set(directories)) < len(directories):
        raise ConfigError("a population has the same run twice")
    if not is_fused(configs[0]):
        return [_alone(config) for config in configs]
    endings: dict[Path, Ending] = {}
    with contextlib.ExitStack() as held:
        members: list[Member] = []
        for config, directory in zip(configs, directories, strict=True):
            try:
                found = join(config, directory, held)
            except (LockedError, ConfigError, OSError) as error:
                endings[directory] = error
                continue
            if isinstance(found, Member):
                share_data(found, members)
                members.append(found)
            else:
                endings[directory] = found
        members.sort(key=lambda member: member.steps, reverse=True)
        for _, group in itertools.groupby(members, key=lambda member: member.steps):
            _train(list(group), endings)  # a kill may have come between two checkpoints
    return [endings[directory] for directory in directories]


def _alone(config: Config) -> Ending:
    try:
        return run_one(config)
    except Exception as error:
        return error


class _Training:
    """Members at the same step, until each has its ending."""

    def __init__(self, members: list[Member], endings: dict[Path, Ending]) -> None:
        self.members, self.endings = members, endings
        self.size = len(members)
        self.trainer, self.device = members[0].setup.trainer, members[0].setup.device
        self.stack, self.data = stack_of(members, self.device), MemberBatches(members, self.device)
        self.steps = members[0].steps
        self.total = self.trainer.max_epochs * self.data.per_epoch
        rows = [m.losses for m in members]
        self.losses = [torch.tensor(step, device=self.device) for step in zip(*rows, strict=True)]
        self.saved = self.started = time.perf_counter()
        self.asked_to_end = False

    def run(self) -> None:
        with self._noting_sigterm():
            done, start = divmod(self.steps, self.data.per_epoch)
            for epoch in range(done, self.trainer.max_epochs):
                self._epoch(epoch, start)
                start = 0
                if not self.members:
                    return
            self._drop({}, range(len(self.members)))

    def _epoch(self, epoch: int, start: int) -> None:
        if start == 0:
            self.losses = []
        for inputs, targets in self.data.batches(epoch, start):
            factor = cosine(self.total, self.trainer.warmup_steps, self.steps)
            self.steps += 1
            self.losses.append(self.stack.step(inputs, targets, self.steps, factor))
            if len(self.losses) % CHECK_EVERY == 0:
                self._check_losses(epoch)
            due = time.perf_counter() - self.saved >= self.trainer.checkpoint_seconds
            if (due or self.asked_to_end) and len(self.losses) < self.data.per_epoch:
                self._save()
            if not self.members:
                return
        self._check_losses(epoch)
        self._lap("training")
        if not self.members:
            return
        last = epoch + 1 == self.trainer.max_epochs
        rows = self._test() if last or (epoch + 1) % self.trainer.test_every == 0 else None
        means = torch.stack(self.losses).double().mean(0).tolist()
        factor = cosine(self.total, self.trainer.warmup_steps, self.steps - 1)
        for i, member in enumerate(self.members):
            lr = float(self.stack.lr[i]) * factor
            row: Row = {"epoch": epoch + 1, "step": self.steps, "lr": lr, "train/loss": means[i]}
            member.history.append(row | (rows[i] if rows else {}))
        if rows:
            self._leave_after_test(rows)
        self.losses = []
        for member in self.members:
            write_history(member.directory / "metrics.csv", member.history)
        if self.members:
            self._save()

    def _test(self) -> list[Row]:
        size = self.members[0].setup.config.settings.model.vocab_size
        scores = [Scores(size, self.device) for _ in self.members]
        for inputs, targets in self.data.tests():
            logits = self.stack.logits(inputs)
            for i, score in enumerate(scores):
                wanted = targets if targets.ndim == 2 else targets[i]
                scored = wanted != IGNORE
                score.add(logits[i][scored].float(), wanted[scored])
        self._lap("testing")
        return [score.row("test") for score in scores]

    def _leave_after_test(self, rows: Sequence[Row]) -> None:
        """Those whose test shows that all is lost, and those who are good enough."""
        lost = [not row["test/loss"] <= LARGEST_LOSS for row in rows]
        for member, is_lost in zip(self.members, lost, strict=True):
            if is_lost:
                member.history.pop()
        good = [
            self.trainer.stop_at is not None and row["test/accuracy"] >= self.trainer.stop_at
            for row in rows
        ]
        self._drop({i: self.steps for i, is_lost in enumerate(lost) if is_lost},
                   [i for i, enough in enumerate(good) if enough and not lost[i]])  # fmt: skip

    def _check_losses(self, epoch: int) -> None:
        if not self.losses:
            return
        bad = ~(torch.stack(self.losses) <= LARGEST_LOSS)  # NaN too
        if not bad.any():
            return
        first = bad.int().argmax(0).tolist()
        before = epoch * self.data.per_epoch
        lost = {i: before + first[i] + 1 for i in bad.any(0).nonzero().flatten().tolist()}
        for i, step in lost.items():
            name = self.members[i].directory.name
            log.warning("run %s diverged: the loss is not finite at step %d", name, step)
        self._drop(lost, [])

    def _drop(self, diverged: Mapping[int, int], good: Sequence[int]) -> None:
        """Write the records of those who leave, and go on with the others."""
        for i, step in diverged.items():
            self._end(i, step)
        for i in good:
            self._end(i, None)
        self._go_on_without({*diverged, *good})

    def _go_on_without(self, gone: Collection[int]) -> None:
        if not gone:
            return
        rest = [i for i in range(len(self.members)) if i not in gone]
        self.members = [self.members[i] for i in rest]
        self.losses = [step[rest] for step in self.losses]
        if rest:
            self.stack.keep(rest)
            self.data.keep(self.members)

    def _end(self, row: int, diverged_at: int | None) -> None:
        """A member's record, as its own run would have written it."""
        member = self.members[row]
        setup = member.setup
        mixers = (mixers_of(model) for model in (setup.model, self.stack.base))
        for own, base in zip(*mixers, strict=True):
            own.form_used = base.form_used
        try:
            if diverged_at is None:
                member.steps, member.losses = self.steps, []
                member.save(*self.stack.row(row))
                self.stack.load(row, setup.model)
            write_history(member.directory / "metrics.csv", member.history)
            trained = Trained(member.history, member.seconds, member.sessions, diverged_at)
            lost = diverged_at is not None
            metrics = setup.data.metrics(member, self.device, setup.task.chance, lost)
            population = {"mode": "fused", "members": self.size}
            record = make_record(setup, member.directory.name, trained, metrics, population)
            record.seconds["session"] = sum(record.seconds.values())
            leave(member.directory, record, member.lock)
        except (LostLockError, OSError) as error:
            self.endings[member.directory] = error
        else:
            self.endings[member.directory] = record

    def _save(self) -> None:
        self._lap("training")
        losses = torch.stack(self.losses).mT.tolist() if self.losses else [[]] * len(self.members)
        lost = set()
        for i, member in enumerate(self.members):
            member.steps, member.losses = self.steps, losses[i]
            try:
                member.save(*self.stack.row(i))
            except LostLockError as error:  # it is somebody else's now; the others are not
                self.endings[member.directory] = error
                lost.add(i)
        self._go_on_without(lost)
        self.saved = time.perf_counter()
        if self.asked_to_end:
            raise SIGTERMException

    def _lap(self, name: str) -> None:
        """Time is shared out, so that the members' add up to what passed."""
        now = time.perf_counter()
        for member in self.members:
            member.seconds[name] += (now - self.started) / len(self.members)
        self.started = now

    @contextlib.contextmanager
    def _noting_sigterm(self) -> Iterator[None]:
        def note(*_: Any) -> None:
            self.asked_to_end = True

        try:
            before = signal.signal(signal.SIGTERM, note)
        except ValueError:  # not the main thread: nobody can ask
            yield
            return
        try:
            yield
        finally:
            signal.signal(signal.SIGTERM, before)


def _train(members: list[Member], endings: dict[Path, Ending]) -> None:
    _Training(members, endings).run()
