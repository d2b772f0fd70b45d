"""The members of a population: runs with what each has so far, their weights and their batches."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from coefdyn.config.compose import Config
from coefdyn.runs.checkpoint import AtomicFiles, another_model
from coefdyn.runs.data import ExampleData
from coefdyn.runs.lock import Lock, locked
from coefdyn.runs.population.stacked import Stack
from coefdyn.runs.record import MEMBER_CHECKPOINT, SCHEMA, Record, Row, provenance, read_record
from coefdyn.runs.run import open_directory
from coefdyn.runs.setup import Setup, set_up


@dataclass
class Member:
    """A run of the population, and what it has so far."""

    setup: Setup
    directory: Path
    lock: Lock
    history: list[Row] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)  # of the steps of an epoch that goes on
    sessions: list[dict[str, Any]] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=lambda: {"training": 0.0, "testing": 0.0})
    steps: int = 0
    weights: Tensor | None = None
    moments: tuple[Tensor, Tensor] | None = None

    @property
    def seed(self) -> int:
        return self.setup.config.settings.seed

    @property
    def data_seed(self) -> int:
        return int(self.setup.config.settings.task["seed"])

    def restore(self) -> None:
        """From its checkpoint, if it has one."""
        path = self.directory / MEMBER_CHECKPOINT
        if not path.exists():
            return
        saved = AtomicFiles().load_checkpoint(path)
        count = sum(p.numel() for p in self.setup.model.parameters())
        names = ("history", "losses", "sessions", "seconds", "steps", "weights", "moments")
        if not saved.keys() >= set(names) or saved["weights"].numel() != count:
            raise another_model(path)
        if saved.get("schema") != SCHEMA:
            raise another_model(path)
        for name in names:
            setattr(self, name, saved[name])

    def save(self, weights: Tensor, moments: tuple[Tensor, Tensor]) -> None:
        self.lock.check()
        kept = {n: getattr(self, n) for n in ("history", "losses", "sessions", "seconds", "steps")}
        # clones: a row would bring the whole stack with it
        state = {
            "schema": SCHEMA,
            "weights": weights.clone(),
            "moments": tuple(m.clone() for m in moments),
        }
        AtomicFiles().save_checkpoint(kept | state, self.directory / MEMBER_CHECKPOINT)


def join(config: Config, directory: Path, held: contextlib.ExitStack) -> Member | Record:
    """The run as a member, locked; or its record if it has one."""
    place, force = directory / "record.json", config.settings.force
    recorded = read_record(place)
    if recorded is not None and not force:
        return recorded
    setup = set_up(config)
    lock = held.enter_context(locked(directory))
    recorded = read_record(place)
    if recorded is not None and not force:
        return recorded
    open_directory(directory, config, displace=recorded is not None)
    member = Member(setup, directory, lock)
    member.restore()
    member.sessions.append(provenance(setup.device))
    return member


def share_data(member: Member, others: Sequence[Member]) -> None:
    """Members with the same data have one copy of it."""
    seeds = {other.data_seed: other.setup.data for other in others}
    if member.data_seed in seeds:
        member.setup = replace(member.setup, data=seeds[member.data_seed])


class MemberBatches:
    """Batches for all members: of one seed once, of several stacked."""

    def __init__(self, members: Sequence[Member], device: torch.device) -> None:
        self.members, self.device = list(members), device
        self.train: dict[int, Any] = {}
        self.test: dict[int, Any] = {}
        for member in members:
            if member.seed in self.train:
                continue
            setup, data = member.setup, member.setup.data
            assert isinstance(data, ExampleData)
            size = setup.trainer.batch_size
            self.train[member.seed] = data.training_batches(size, device, member.seed)
            size = max(1, setup.test_batch_size // len(members))
            self.test[member.seed] = data.test_batches(size, device)
        self.per_epoch = len(next(iter(self.train.values())))

    def keep(self, members: Sequence[Member]) -> None:
        self.members = list(members)

    def batches(self, epoch: int, start: int) -> Iterator[tuple[Tensor, Tensor]]:
        for batches in self.train.values():
            batches.set_epoch(epoch)
            batches.load_state_dict({"position": start})
        yield from self._together(self.train)

    def tests(self) -> Iterator[tuple[Tensor, Tensor]]:
        yield from self._together(self.test)

    def _together(self, sources: Mapping[int, Any]) -> Iterator[tuple[Tensor, Tensor]]:
        for found in zip(*sources.values(), strict=True):
            batch = dict(zip(sources, found, strict=True))
            if len(batch) == 1:
                yield found[0]
                continue
            inputs, targets = ([batch[m.seed][i] for m in self.members] for i in range(2))
            yield torch.stack(inputs), torch.stack(targets)


def stack_of(members: Sequence[Member], device: torch.device) -> Stack:
    settings = [member.setup.config.settings for member in members]
    first = settings[0]
    made = Stack(
        [member.setup.model for member in members],
        lr=[float(chosen.optimizer["lr"]) for chosen in settings],
        decay=[float(chosen.optimizer["weight_decay"]) for chosen in settings],
        betas=tuple(first.optimizer["betas"]),
        eps=float(first.optimizer["eps"]),
        clip=first.trainer.clip,
        mixed=first.trainer.precision == "bf16-mixed",
        device=device,
    )
    for row, member in enumerate(members):
        if member.weights is not None and member.moments is not None:
            made.restore(row, member.weights, member.moments)
    return made
