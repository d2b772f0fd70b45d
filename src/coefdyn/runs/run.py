"""One run, from a configuration to its record. Every way to start a run ends up here."""

import contextlib
import dataclasses
import logging
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from coefdyn.config.build import build_optimizer
from coefdyn.config.compose import Config, as_yaml
from coefdyn.errors import ConfigError
from coefdyn.model.coefficient_statistics import FEW, brief_statistics, coefficient_statistics
from coefdyn.model.model import SequenceModel, blocks_of, mixers_of
from coefdyn.runs.archive import already_recorded, folder_of, record_of
from coefdyn.runs.batches import Resumable
from coefdyn.runs.checkpoint import KeepProgress, RunFiles, StoppedByUserError, steps_of
from coefdyn.runs.compiling import compile_blocks, compile_if_faster
from coefdyn.runs.learner import Alone, Learner
from coefdyn.runs.lock import Lock, LostLockError, locked
from coefdyn.runs.loggers import Loggers
from coefdyn.runs.loop import NobodyLeftError, Training
from coefdyn.runs.progress import Progress
from coefdyn.runs.record import (
    CHECKPOINT,
    SCHEMA,
    Record,
    Row,
    columns,
    provenance,
    write_atomically,
    write_history,
    write_record,
)
from coefdyn.runs.setup import Setup, set_up
from coefdyn.runs.trainer import autocast, lightning_trainer
from coefdyn.runs.trials import trials_of

log = logging.getLogger(__name__)

STATISTICS_SEQUENCES, STATISTICS_TOKENS = 64, 2**15  # largest sample for the statistics


def run_one(config: Config) -> Record:
    """Train, test, measure the coefficients and write the record; or read a record that exists.

    With trainer=ddp each of the processes calls this, and the first one writes.
    """
    if (recorded := already_recorded(config)) is not None:
        return recorded
    started = time.perf_counter()
    job = begin(set_up(config))
    processes = job.setup.processes

    def finish() -> Record:
        assert record is not None
        seconds = record.seconds | {"session": time.perf_counter() - started}
        return leave(job, dataclasses.replace(record, seconds=seconds))

    try:
        with contextlib.ExitStack() as held:
            recorded = processes.agree(partial(take, job, held))
            if recorded is not None:
                return recorded
            record = _train(job)
            return processes.agree(finish)
    except OSError as error:
        raise ConfigError(
            f"paths.results={config.settings.paths.results} cannot be written to: "
            f"{error.strerror or error}; what is there is unharmed, and the same command goes on"
        ) from error


@dataclass
class Job:
    """A run that is being trained."""

    setup: Setup
    directory: Path
    progress: Progress
    lock: Lock | None = None  # of several processes only the first has one
    loggers: Loggers | None = None


def begin(setup: Setup) -> Job:
    """A job with no progress yet. Nothing is written."""
    session = provenance(setup.device)
    if setup.processes.world > 1:
        session["device"]["processes"] = setup.processes.world
    directory = folder_of(setup.config)
    return Job(setup, directory, Progress(directory.name, [session]))


def take(job: Job, held: contextlib.ExitStack) -> Record | None:
    """Lock the run and prepare its directory; or return its record, if another process wrote one.

    With force=true the checkpoint is removed, then the record: while there is a record, the run is
    finished.
    """
    directory, config = job.directory, job.setup.config
    job.lock = held.enter_context(locked(directory))
    recorded = record_of(directory)
    if recorded is not None and not config.settings.force:
        return recorded
    directory.mkdir(parents=True, exist_ok=True)
    for leftover in directory.glob("*.partial"):  # from a process that was killed
        if not leftover.name.startswith(("lock.", "probe.")) or _is_old(leftover):
            leftover.unlink(missing_ok=True)
    write_atomically(directory / "config.yaml", as_yaml(config.values))
    (directory / "error.txt").unlink(missing_ok=True)
    if (directory / "record.json").exists():  # an archived run may have none here
        (directory / CHECKPOINT).unlink(missing_ok=True)
        (directory / "record.json").replace(directory / "record.old.json")
    return None


def leave(job: Job, record: Record) -> Record:
    """Write the record and clean up; LostLockError if another process has taken over."""
    assert job.lock is not None
    job.lock.check()
    write_record(job.directory / "record.json", record)
    for leftover in ("error.txt", "record.old.json"):
        (job.directory / leftover).unlink(missing_ok=True)
    return record


def _is_old(path: Path) -> bool:
    """Whether a file is older than an hour. Another process may still need a younger one."""
    try:
        return time.time() - path.stat().st_mtime > 3600
    except OSError:
        return False


def _train(job: Job) -> Record | None:
    """Train one run. Returns its record; of several processes only the first gets one."""
    setup, first = job.setup, job.setup.processes.first
    model, devices = setup.model, setup.trainer.devices
    model.recompute = devices.recompute
    learner = Alone(model, setup.config.settings.model.vocab_size)
    if devices.compile == "auto":
        job.progress.sessions[-1]["device"]["compiled"] = _try_compiling(setup, learner)
    elif devices.compile:
        compile_blocks(model)
    test = setup.data.test_batches(setup.test_batch_size, setup.device, setup.processes)
    record = None
    job.loggers = Loggers(setup.loggers if first else [], setup.config, job.directory)
    try:
        module = fit([job], learner, setup.training_batches(), test)
        if job.progress.taken_over is not None:
            raise job.progress.taken_over
        record = make_record(job, module)
        return record
    except (ConfigError, LostLockError):
        raise
    except Exception:
        if first:
            with contextlib.suppress(OSError):
                write_atomically(job.directory / "error.txt", traceback.format_exc())
        raise
    finally:
        job.loggers.end(record)


def _try_compiling(setup: Setup, learner: Alone) -> dict[str, Any]:
    """Compile the model's blocks if that pays, tried on a training batch."""
    setup.model.to(setup.device)
    batch = next(iter(setup.training_batches()))

    def loss() -> torch.Tensor:
        with autocast(setup.trainer, setup.device):
            return learner.losses(batch, [0])

    return compile_if_faster(setup.model, loss)


def fit(
    jobs: Sequence[Job],
    learner: Learner,
    train: Resumable,
    test: Any,
    ended: Callable[[Training, int], None] | None = None,
) -> Training:
    """Train jobs that have done equally many steps, each a row of the learner.

    The progress of each job says how it ended. `ended` is called when one ends before the others.
    """
    setup, directories = jobs[0].setup, [job.directory for job in jobs]
    config, trainer, processes = setup.config, setup.trainer, setup.processes

    def look(row: int) -> dict[str, Any]:
        return _follow(jobs[row].setup, learner.model_of(row))

    module = Training(
        learner,
        [job.progress for job in jobs],
        vocab_size=config.settings.model.vocab_size,
        make_optimizer=partial(build_optimizer, config),
        total_steps=trainer.max_epochs * len(train) // trainer.devices.accumulate,
        trainer=trainer,
        splits=setup.data.looked_at,
        processes=processes,
        look=look if processes.world == 1 else None,
        ended=lambda row: ended(module, row) if ended else None,
    )
    start = processes.agree(partial(steps_of, directories[0] / CHECKPOINT, setup.model))
    if not start and processes.world == 1:
        for row, job in enumerate(jobs):
            job.progress.initial = look(row)
    if start:
        for directory in directories:
            log.info("run %s goes on from its checkpoint", directory.name)
    locks = [job.lock for job in jobs]
    loggers = jobs[0].loggers
    keep = KeepProgress(directories, trainer.checkpoint_seconds, locks, loggers, processes)
    files = RunFiles(directories, module)
    try:
        lightning_trainer(trainer, [keep], files, directories[0], processes).fit(
            module, train, test, ckpt_path=directories[0] / CHECKPOINT if start else None
        )
    except NobodyLeftError:
        pass
    except StoppedByUserError:
        raise KeyboardInterrupt from None
    finally:
        keep.close()
    return module.to(setup.device)  # Lightning has moved it to the CPU


@torch.no_grad()
def _follow(setup: Setup, model: SequenceModel) -> dict[str, Any]:
    """Statistics of the coefficients on a few test sequences, to follow them through training."""
    if not mixers_of(model):
        return {}
    training = model.training
    sample = torch.from_numpy(setup.data.sample(FEW)).to(setup.device)
    statistics = brief_statistics(model.to(setup.device).eval(), sample)
    model.train(training)
    return statistics


def make_record(
    job: Job, module: Training, population: dict[str, Any] | None = None
) -> Record | None:
    """The record of a job, with statistics of its present model. All processes must call it."""
    setup, run, model = job.setup, job.progress, job.setup.model
    if setup.processes.first:
        write_history(job.directory / "metrics.csv", run.history)
    with autocast(setup.trainer, setup.device):
        levels = setup.data.levels()
        metrics = setup.data.metrics(run, module, levels["chance"])
    if not setup.processes.first:
        return None
    started = time.perf_counter()
    statistics = None
    if run.diverged_at is None and mixers_of(model):
        count = min(STATISTICS_SEQUENCES, max(1, STATISTICS_TOKENS // setup.task.length))
        sample = torch.from_numpy(setup.data.sample(count)).to(setup.device)
        statistics = coefficient_statistics(model.to(setup.device).eval(), sample)
    if trials := trials_of(model):
        run.sessions[-1]["device"]["trials"] = trials
    last: Row = run.history[-1] if run.history else {}
    return Record(
        schema=SCHEMA,
        run_id=run.name,
        status="finished" if run.diverged_at is None else "diverged",
        diverged_at_step=run.diverged_at,
        metrics=metrics,
        coefficients=statistics,
        initial=run.initial,
        epochs=int(last.get("epoch", 0)),
        steps=int(last.get("step", 0)),
        chance=levels["chance"],
        order_free=levels["order_free"],
        ceiling=levels["ceiling"],
        config=setup.config.values,
        choices=dict(setup.config.choices),
        backend=[getattr(block.mixer, "form_used", None) for block in blocks_of(model)],
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        data=setup.data.digests(),
        history=columns(run.history),
        population=population,
        seconds={**run.seconds, "statistics": time.perf_counter() - started},
        earlier_sessions=run.sessions[:-1],
        **run.sessions[-1],
    )
