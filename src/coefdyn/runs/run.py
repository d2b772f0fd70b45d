"""One run, from a configuration to its record: what every way of launching calls."""

import contextlib
import dataclasses
import logging
import time
import traceback
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from coefdyn.config.build import build_optimizer
from coefdyn.config.compose import Config, as_yaml
from coefdyn.errors import ConfigError
from coefdyn.model.coefficient_statistics import coefficient_statistics
from coefdyn.model.model import blocks_of, mixers_of
from coefdyn.runs.checkpoint import KeepProgress, check_checkpoint
from coefdyn.runs.lock import Lock, LostLockError, locked
from coefdyn.runs.loop import DivergedError, Training
from coefdyn.runs.record import (
    MEMBER_CHECKPOINT,
    SCHEMA,
    SOLO_CHECKPOINT,
    Record,
    Row,
    columns,
    provenance,
    read_record,
    write_atomically,
    write_history,
    write_record,
)
from coefdyn.runs.setup import Setup, set_up
from coefdyn.runs.trainer import autocast, lightning_trainer

log = logging.getLogger(__name__)

STATISTICS_SEQUENCES, STATISTICS_TOKENS = 64, 2**15  # at most


def folder_of(config: Config) -> Path:
    return Path(config.settings.paths.results) / "runs" / config.run_id


def run_one(config: Config) -> Record:
    """Train, test, look at the coefficients, write the record; or find it already written.

    With trainer=ddp each of the processes calls it, and the first one writes.
    """
    directory, force = folder_of(config), config.settings.force
    place = directory / "record.json"
    recorded = read_record(place)
    if recorded is not None and not force:
        log.info("run %s is already recorded; force=true trains it again", recorded.run_id)
        return recorded
    started = time.perf_counter()
    setup = set_up(config)
    lock: Lock | None = None

    def begin() -> Record | None:
        nonlocal lock
        lock = held.enter_context(locked(directory))
        recorded = read_record(place)  # somebody may just have written it
        if recorded is not None and not force:
            return recorded
        open_directory(directory, config, displace=recorded is not None)
        return None

    def finish() -> Record:
        assert lock is not None
        assert record is not None
        seconds = record.seconds | {"session": time.perf_counter() - started}
        return leave(directory, dataclasses.replace(record, seconds=seconds), lock)

    try:
        with contextlib.ExitStack() as held:
            recorded = setup.processes.agree(begin)
            if recorded is not None:
                return recorded
            record = _run(setup, directory, lock)
            return setup.processes.agree(finish)
    except OSError as error:
        raise ConfigError(
            f"paths.results={config.settings.paths.results} cannot be written to: "
            f"{error.strerror or error}; what is there is unharmed, and the same command goes on"
        ) from error


def open_directory(directory: Path, config: Config, displace: bool) -> None:
    """`displace`: a finished run is to be trained again, and its checkpoint is no start for that.

    The record goes last: as long as it is there, the run is the finished one.
    """
    directory.mkdir(parents=True, exist_ok=True)
    for leftover in directory.glob("*.partial"):  # of a process that was killed
        if not leftover.name.startswith(("lock.", "probe.")) or _is_old(leftover):
            leftover.unlink(missing_ok=True)
    write_atomically(directory / "config.yaml", as_yaml(config.values))
    (directory / "error.txt").unlink(missing_ok=True)
    if displace:
        for name in (SOLO_CHECKPOINT, MEMBER_CHECKPOINT):
            (directory / name).unlink(missing_ok=True)
        (directory / "record.json").replace(directory / "record.old.json")


def leave(directory: Path, record: Record, lock: Lock) -> Record:
    """Write the record, unless somebody else has taken over, and clear up."""
    lock.check()
    write_record(directory / "record.json", record)
    other = SOLO_CHECKPOINT if record.population else MEMBER_CHECKPOINT
    for leftover in ("error.txt", "record.old.json", other):
        (directory / leftover).unlink(missing_ok=True)
    return record


def _is_old(path: Path) -> bool:
    """Others look at a run in passing, and take a moment for it."""
    try:
        return time.time() - path.stat().st_mtime > 3600
    except OSError:
        return False


def _run(setup: Setup, directory: Path, lock: Lock | None) -> Record | None:
    """The record, which only the first of several processes has. It has the lock too."""
    first, device = setup.processes.first, setup.device
    session = provenance(device)
    if setup.processes.world > 1:
        session["device"]["processes"] = setup.processes.world
    try:
        module, diverged_at = _train(setup, directory, lock, session)
    except (ConfigError, LostLockError):
        raise
    except Exception:
        if first:
            with contextlib.suppress(OSError):
                write_atomically(directory / "error.txt", traceback.format_exc())
        raise
    if first:
        write_history(directory / "metrics.csv", module.history)
    with autocast(setup.trainer, device):
        metrics = setup.data.metrics(module, device, setup.task.chance, diverged_at is not None)
    if not first:
        return None
    done = Trained(module.history, module.seconds, module.sessions, diverged_at)
    return make_record(setup, directory.name, done, metrics)


@dataclass(frozen=True)
class Trained:
    """What a training leaves besides the weights."""

    history: list[Row]
    seconds: dict[str, float]
    sessions: list[dict[str, Any]]  # which code ran where, the present one last
    diverged_at: int | None


def make_record(
    setup: Setup,
    name: str,
    trained: Trained,
    metrics: dict[str, float | None],
    population: dict[str, Any] | None = None,
) -> Record:
    """With the statistics of the model as it is now."""
    model, diverged_at = setup.model, trained.diverged_at
    started = time.perf_counter()
    statistics = None
    if diverged_at is None and mixers_of(model):
        count = min(STATISTICS_SEQUENCES, max(1, STATISTICS_TOKENS // setup.task.length))
        sample = torch.from_numpy(setup.data.sample(count)).to(setup.device)
        statistics = coefficient_statistics(model.to(setup.device).eval(), sample)
    last: Row = trained.history[-1] if trained.history else {}
    return Record(
        schema=SCHEMA,
        run_id=name,
        status="finished" if diverged_at is None else "diverged",
        diverged_at_step=diverged_at,
        metrics=metrics,
        coefficients=statistics,
        epochs=int(last.get("epoch", 0)),
        steps=int(last.get("step", 0)),
        chance=setup.task.chance,
        config=setup.config.values,
        choices=dict(setup.config.choices),
        backend=[getattr(block.mixer, "form_used", None) for block in blocks_of(model)],
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        data=setup.data.digests(),
        history=columns(trained.history),
        population=population,
        seconds={**trained.seconds, "statistics": time.perf_counter() - started},
        earlier_sessions=trained.sessions[:-1],
        **trained.sessions[-1],
    )


def _train(
    setup: Setup, directory: Path, lock: Lock | None, session: dict[str, Any]
) -> tuple[Training, int | None]:
    """The module after training, and the step at which it diverged, if it did."""
    config, data, trainer, processes = setup.config, setup.data, setup.trainer, setup.processes
    train = setup.training_batches()
    test = data.test_batches(setup.test_batch_size, setup.device, processes)
    setup.model.recompute = trainer.devices.recompute
    if trainer.devices.compile:
        for block in setup.model.blocks:
            block.compile()
    module = Training(
        setup.model,
        vocab_size=config.settings.model.vocab_size,
        make_optimizer=partial(build_optimizer, config),
        warmup_steps=trainer.warmup_steps,
        total_steps=trainer.max_epochs * len(train) // trainer.devices.accumulate,
        test_every=trainer.test_every,
        stop_at=trainer.stop_at,
        session=session,
        split=data.looked_at,
        processes=processes,
    )
    name, checkpoint = directory.name, directory / SOLO_CHECKPOINT
    start = checkpoint if processes.agree(checkpoint.exists) else None
    if start:
        check_checkpoint(checkpoint, module)
        log.info("run %s goes on from its checkpoint", name)
    makers = setup.loggers if processes.first else []
    loggers = [make(save_dir=directory, version=name, name=name) for make in makers]
    before = lock.check if lock else _nothing
    keep = KeepProgress(directory, trainer.checkpoint_seconds, loggers, before, processes)
    exit_code, diverged_at = 1, None
    try:
        for logger in loggers:
            logger.log_hyperparams(config.values)
        lightning_trainer(trainer, [keep], directory, processes).fit(
            module, train, test, ckpt_path=start
        )
        exit_code = 0
    except DivergedError as error:
        exit_code, diverged_at = 0, error.step
        log.warning("run %s diverged: %s", name, error)
    finally:
        keep.close(exit_code)
    return module, diverged_at


def _nothing() -> None:
    pass
