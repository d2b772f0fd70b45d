"""Populations: runs that differ only in learning rate, weight decay and seed, trained at once.

One step of all members is one pass under torch.func.vmap. If a model is so small that launching
operations dominates, ten members take little longer than one. Each member gets the record that its
own run would have given. A member that diverges or reaches `stop_at` leaves; the others continue.
"""

import contextlib
import itertools
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from coefdyn.config.compose import Config
from coefdyn.errors import ConfigError
from coefdyn.runs.archive import folder_of, record_of
from coefdyn.runs.batches import Batches, Resumable
from coefdyn.runs.checkpoint import steps_of
from coefdyn.runs.data import Data, ExampleData
from coefdyn.runs.lock import LockedError, LostLockError
from coefdyn.runs.loop import Training
from coefdyn.runs.population.batches import MemberBatches, MemberTests
from coefdyn.runs.population.fusing import family, is_fused
from coefdyn.runs.population.stacked import Stack
from coefdyn.runs.record import CHECKPOINT, Record
from coefdyn.runs.run import Job, begin, fit, leave, make_record, run_one, take
from coefdyn.runs.setup import set_up

Ending = Record | Exception  # a record, or why there is none


def train_population(configs: Sequence[Config]) -> list[Ending]:
    """Train the runs and return the ending of each, in order. A recorded run is only read."""
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
    with contextlib.ExitStack() as locks:
        jobs: list[tuple[int, Job]] = []  # with the steps of its checkpoint
        for config, directory in zip(configs, directories, strict=True):
            try:
                joined = _join(config, locks)
                if isinstance(joined, Job):
                    steps = steps_of(directory / CHECKPOINT, joined.setup.model)
                    jobs.append((steps, joined))
                else:
                    endings[directory] = joined
            except (LockedError, ConfigError, OSError) as error:
                endings[directory] = error
        jobs.sort(key=lambda pair: pair[0], reverse=True)
        # After a kill between two checkpoints, members may differ in their steps.
        for _, group in itertools.groupby(jobs, key=lambda pair: pair[0]):
            _train([job for _, job in group], endings)
    return [endings[directory] for directory in directories]


def _alone(config: Config) -> Ending:
    try:
        return run_one(config)
    except Exception as error:
        return error


def _join(config: Config, locks: contextlib.ExitStack) -> Job | Record:
    """Lock the run and return its job; or return its record if it has one."""
    recorded = record_of(folder_of(config))
    if recorded is not None and not config.settings.force:
        return recorded
    job = begin(set_up(config))
    return take(job, locks) or job


def _train(jobs: list[Job], endings: dict[Path, Ending]) -> None:
    """Train jobs that have done equally many steps, and put their endings into `endings`."""
    _share_data(jobs)
    setups = [job.setup for job in jobs]
    settings, device = [setup.config.settings for setup in setups], setups[0].device
    stack = Stack(
        [setup.model for setup in setups],
        [member.seed for member in settings],
        [member.optimizer for member in settings],
        device,
    )
    train: dict[int, Resumable] = {}
    test: dict[int, list[Batches]] = {}
    for setup, member in zip(setups, settings, strict=True):
        assert isinstance(setup.data, ExampleData)
        size = max(1, setup.test_batch_size // len(jobs))
        train[member.seed] = setup.training_batches()
        test[member.seed] = setup.data.test_batches(size, device)
    splits = zip(*test.values(), strict=True)
    tests = [MemberTests(dict(zip(test, batches, strict=True))) for batches in splits]

    def end(module: Training, row: int) -> None:
        endings[jobs[row].directory] = _end(jobs[row], stack, module, row)

    module = fit(jobs, stack, MemberBatches(train), tests, end)
    for row in module.rows:
        end(module, row)


def _end(job: Job, stack: Stack, module: Training, row: int) -> Ending:
    """A member's record, as its own run would have written it."""
    if job.progress.taken_over is not None:
        return job.progress.taken_over
    stack.model_of(row)  # updates the job's own model
    try:
        record = make_record(job, module, {"mode": "fused", "members": len(module.runs)})
        assert record is not None
        record.seconds["session"] = sum(record.seconds.values())
        return leave(job, record)
    except (LostLockError, OSError) as error:
        return error


def _share_data(jobs: Sequence[Job]) -> None:
    """Let members with the same data share one copy of it."""
    known: dict[int, Data] = {}
    for job in jobs:
        data = known.setdefault(int(job.setup.config.settings.task["seed"]), job.setup.data)
        job.setup = replace(job.setup, data=data)
