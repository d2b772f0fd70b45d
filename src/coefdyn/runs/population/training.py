"""Runs that differ in learning rate, weight decay and seed only, trained at once.

One step of all is one pass under torch.func.vmap: where a model is so small that launching
operations is what costs, ten members take little longer than one. Each gets the record that its
own run would have given. A member that diverges or reaches `stop_at` leaves; the others go on.
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
        jobs: list[tuple[int, Job]] = []  # with the steps it has behind it
        for config, directory in zip(configs, directories, strict=True):
            try:
                found = _join(config, held)
                if isinstance(found, Job):
                    steps = steps_of(directory / CHECKPOINT, found.setup.model)
                    jobs.append((steps, found))
                else:
                    endings[directory] = found
            except (LockedError, ConfigError, OSError) as error:
                endings[directory] = error
        jobs.sort(key=lambda pair: pair[0], reverse=True)
        for _, group in itertools.groupby(jobs, key=lambda pair: pair[0]):
            _train([job for _, job in group], endings)  # a kill may come between two checkpoints
    return [endings[directory] for directory in directories]


def _alone(config: Config) -> Ending:
    try:
        return run_one(config)
    except Exception as error:
        return error


def _join(config: Config, held: contextlib.ExitStack) -> Job | Record:
    """The run, locked; or its record if it has one."""
    recorded = record_of(folder_of(config))
    if recorded is not None and not config.settings.force:
        return recorded
    job = begin(set_up(config))
    return take(job, held) or job


def _train(jobs: list[Job], endings: dict[Path, Ending]) -> None:
    """Jobs that are equally far, until each has its ending."""
    _share_data(jobs)
    setups = [job.setup for job in jobs]
    settings, device = [setup.config.settings for setup in setups], setups[0].device
    stack = Stack(
        [setup.model for setup in setups],
        [chosen.seed for chosen in settings],
        [chosen.optimizer for chosen in settings],
        device,
    )
    train: dict[int, Resumable] = {}
    test: dict[int, list[Batches]] = {}
    for setup, chosen in zip(setups, settings, strict=True):
        assert isinstance(setup.data, ExampleData)
        size = max(1, setup.test_batch_size // len(jobs))
        train[chosen.seed] = setup.training_batches()
        test[chosen.seed] = setup.data.test_batches(size, device)
    splits = zip(*test.values(), strict=True)
    tests = [MemberTests(dict(zip(test, found, strict=True))) for found in splits]

    def end(module: Training, row: int) -> None:
        endings[jobs[row].directory] = _end(jobs[row], stack, module, row)

    module = fit(jobs, stack, MemberBatches(train), tests, end)
    for row in module.rows:
        end(module, row)


def _end(job: Job, stack: Stack, module: Training, row: int) -> Ending:
    """A member's record, as its own run would have written it."""
    if job.progress.taken_over is not None:
        return job.progress.taken_over
    stack.model_of(row)  # is the job's own
    try:
        record = make_record(job, module, {"mode": "fused", "members": len(module.runs)})
        assert record is not None
        record.seconds["session"] = sum(record.seconds.values())
        return leave(job, record)
    except (LostLockError, OSError) as error:
        return error


def _share_data(jobs: Sequence[Job]) -> None:
    """Members with the same data have one copy of it."""
    known: dict[int, Data] = {}
    for job in jobs:
        data = known.setdefault(int(job.setup.config.settings.task["seed"]), job.setup.data)
        job.setup = replace(job.setup, data=data)
