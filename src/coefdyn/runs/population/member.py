"""The members of a population: runs with what each has so far, their weights and their batches."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from coefdyn.config.compose import Config, settings
from coefdyn.errors import ConfigError
from coefdyn.runs.checkpoint import AtomicFiles
from coefdyn.runs.data import ExampleData
from coefdyn.runs.lock import Lock, locked
from coefdyn.runs.loop import Row
from coefdyn.runs.population.stacked import Stack
from coefdyn.runs.record import MEMBER_CHECKPOINT, provenance, read_record
from coefdyn.runs.run import open_directory
from coefdyn.runs.setup import Setup, set_up, test_batch_size


@dataclass
class Member:
    """A run of the population, and what it has so far."""

    config: Config
    prepared: Setup
    directory: Path
    lock: Lock
    history: list[Row] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)  # of the steps of an epoch that goes on
    sessions: list[dict[str, Any]] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=lambda: {"training": 0.0, "testing": 0.0})
    steps: int = 0
    weights: Tensor | None = None
    moments: tuple[Tensor, Tensor] | None = None

    def restore(self) -> None:
        """From its checkpoint, if it has one."""
        path = self.directory / MEMBER_CHECKPOINT
        if not path.exists():
            return
        saved = AtomicFiles().load_checkpoint(path)
        count = sum(p.numel() for p in self.prepared.model.parameters())
        names = ("history", "losses", "sessions", "seconds", "steps", "weights", "moments")
        if not saved.keys() >= set(names) or saved["weights"].numel() != count:
            raise ConfigError(
                f"the checkpoint {path} is not of this model as the code is now; delete it to "
                "train this run from the start"
            )
        for name in names:
            setattr(self, name, saved[name])

    def save(self, weights: Tensor, moments: tuple[Tensor, Tensor]) -> None:
        self.lock.check()
        kept = {n: getattr(self, n) for n in ("history", "losses", "sessions", "seconds", "steps")}
        # clones: a row would bring the whole stack with it
        state = {"weights": weights.clone(), "moments": tuple(m.clone() for m in moments)}
        AtomicFiles().save_checkpoint(kept | state, self.directory / MEMBER_CHECKPOINT)


def join(config: Config, directory: Path, held: contextlib.ExitStack) -> Member | dict[str, Any]:
    """The run as a member, locked; or its record if it has one."""
    place, force = directory / "record.json", config.values.force
    found = read_record(place)
    if found is not None and not force:
        return found
    prepared = set_up(config)
    lock = held.enter_context(locked(directory))
    found = read_record(place)
    if found is not None and not force:
        return found
    open_directory(directory, config, displace=found is not None)
    member = Member(config, prepared, directory, lock)
    member.restore()
    member.sessions.append(provenance(torch.device(prepared.trainer.accelerator)))
    return member


def share_data(member: Member, others: Sequence[Member]) -> None:
    """Members with the same data have one copy of it."""
    seeds = {int(other.config.values.task.seed): other.prepared.data for other in others}
    same = seeds.get(int(member.config.values.task.seed))
    if same is not None:
        member.prepared = replace(member.prepared, data=same)


class MemberBatches:
    """Batches for all members: of one seed once, of several stacked."""

    def __init__(self, members: Sequence[Member], device: torch.device) -> None:
        self.members, self.device = list(members), device
        self.train: dict[int, Any] = {}
        self.test: dict[int, Any] = {}
        for member in members:
            seed = int(member.config.values.seed)
            if seed in self.train:
                continue
            prepared, data = member.prepared, member.prepared.data
            assert isinstance(data, ExampleData)
            self.train[seed] = data.training_batches(prepared.trainer.batch_size, device, seed)
            size = max(1, test_batch_size(prepared) // len(members))
            self.test[seed] = data.test_batches(size, device)
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
            seeds = [int(member.config.values.seed) for member in self.members]
            inputs, targets = ([batch[seed][i] for seed in seeds] for i in range(2))
            yield torch.stack(inputs), torch.stack(targets)


def stack_of(members: Sequence[Member], device: torch.device) -> Stack:
    optimizers = [settings(member.config)["optimizer"] for member in members]
    made = Stack(
        [member.prepared.model for member in members],
        lr=[float(chosen["lr"]) for chosen in optimizers],
        decay=[float(chosen["weight_decay"]) for chosen in optimizers],
        betas=tuple(optimizers[0]["betas"]),
        eps=float(optimizers[0]["eps"]),
        clip=members[0].prepared.trainer.clip,
        mixed=members[0].prepared.trainer.precision == "bf16-mixed",
        device=device,
    )
    for row, member in enumerate(members):
        if member.weights is not None and member.moments is not None:
            made.restore(row, member.weights, member.moments)
    return made
