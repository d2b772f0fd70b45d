"""One run, from a configuration to its record: what every way of launching calls."""

import contextlib
import logging
import time
import traceback
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from omegaconf import OmegaConf

from coefdyn.config.build import build_optimizer, check_keys
from coefdyn.config.compose import Config, settings
from coefdyn.errors import ConfigError
from coefdyn.model.coefficient_statistics import blocks_of, coefficient_statistics
from coefdyn.runs.checkpoint import KeepProgress, check_checkpoint
from coefdyn.runs.lock import Lock, LostLockError, locked
from coefdyn.runs.loop import DivergedError, Row, Training
from coefdyn.runs.record import (
    MEMBER_CHECKPOINT,
    SOLO_CHECKPOINT,
    provenance,
    read_record,
    run_id,
    write_atomically,
    write_history,
    write_record,
)
from coefdyn.runs.setup import Setup, set_up, test_batch_size, training_batches

log = logging.getLogger(__name__)

STATISTICS_SEQUENCES, STATISTICS_TOKENS = 64, 2**15  # at most


def run_one(config: Config) -> dict[str, Any]:
    """Train, test, look at the coefficients, write the record; or find it already written.

    With trainer=ddp each of the processes calls it, and the first one writes.
    """
    check_keys(config)
    name = run_id(config)
    directory = Path(config.values.paths.results) / "runs" / name
    found = read_record(directory / "record.json")
    if found is not None and not config.values.force:
        log.info("run %s is already recorded; force=true trains it again", name)
        return found
    started = time.perf_counter()
    prepared = set_up(config)
    processes, place = prepared.processes, directory / "record.json"
    lock: Lock | None = None

    def begin() -> dict[str, Any] | None:
        nonlocal lock
        lock = held.enter_context(locked(directory))
        found = read_record(place)  # somebody may just have written it
        if found is not None and not config.values.force:
            return found
        open_directory(directory, config, displace=found is not None)
        return None

    def finish() -> dict[str, Any]:
        assert lock is not None
        record["seconds"]["session"] = time.perf_counter() - started
        lock.check()
        write_record(place, record)
        for leftover in ("error.txt", "record.old.json", MEMBER_CHECKPOINT):
            (directory / leftover).unlink(missing_ok=True)
        return record

    try:
        with contextlib.ExitStack() as held:
            found = processes.agree(begin)
            if found is not None:
                return found
            record = _run(config, prepared, directory, lock)
            return processes.agree(finish)
    except OSError as error:
        raise ConfigError(
            f"paths.results={config.values.paths.results} cannot be written to: "
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
    write_atomically(directory / "config.yaml", OmegaConf.to_yaml(config.values))
    (directory / "error.txt").unlink(missing_ok=True)
    if displace:
        for name in (SOLO_CHECKPOINT, MEMBER_CHECKPOINT):
            (directory / name).unlink(missing_ok=True)
        (directory / "record.json").replace(directory / "record.old.json")


def _is_old(path: Path) -> bool:
    """Others look at a run in passing, and take a moment for it."""
    try:
        return time.time() - path.stat().st_mtime > 3600
    except OSError:
        return False


def _run(config: Config, prepared: Setup, directory: Path, lock: Lock | None) -> dict[str, Any]:
    """The record, of which only the first of several processes has all. It has the lock too."""
    first = prepared.processes.first
    device = torch.device(prepared.trainer.accelerator)
    session = provenance(device)
    if prepared.processes.world > 1:
        session["device"]["processes"] = prepared.processes.world
    try:
        module, diverged_at = _train(config, prepared, directory, lock, session)
    except (ConfigError, LostLockError):
        raise
    except Exception:
        if first:
            with contextlib.suppress(OSError):
                write_atomically(directory / "error.txt", traceback.format_exc())
        raise
    if first:
        write_history(directory / "metrics.csv", module.history)
    chance, diverged = prepared.task.chance, diverged_at is not None
    with prepared.trainer.autocast(device):
        measured = prepared.data.metrics(module, device, chance, diverged)
    if not first:
        return {}
    done = Trained(module.history, module.seconds, module.sessions, diverged_at)
    return make_record(config, prepared, directory.name, done, measured)


@dataclass(frozen=True)
class Trained:
    """What a training leaves besides the weights."""

    history: list[Row]
    seconds: dict[str, float]
    sessions: list[dict[str, Any]]  # which code ran where, the present one last
    diverged_at: int | None


def make_record(
    config: Config,
    prepared: Setup,
    name: str,
    trained: Trained,
    measured: dict[str, float | None],
) -> dict[str, Any]:
    """With the statistics of the model as it is now."""
    model, diverged_at = prepared.model, trained.diverged_at
    device = torch.device(prepared.trainer.accelerator)
    started = time.perf_counter()
    statistics = None
    if diverged_at is None:
        count = min(STATISTICS_SEQUENCES, max(1, STATISTICS_TOKENS // prepared.task.length))
        sample = torch.from_numpy(prepared.data.sample(count)).to(device)
        statistics = coefficient_statistics(model.to(device).eval(), sample)
    last: Row = trained.history[-1] if trained.history else {}
    return {
        "run_id": name,
        "status": "finished" if diverged_at is None else "diverged",
        "diverged_at_step": diverged_at,
        "metrics": measured,
        "coefficients": statistics,
        "epochs": last.get("epoch", 0),
        "steps": last.get("step", 0),
        "chance": prepared.task.chance,
        "config": settings(config),
        "choices": dict(config.choices),
        "backend": [block.mixer.form_used for block in blocks_of(model)],
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "data": prepared.data.digests(),
        "seconds": {**trained.seconds, "statistics": time.perf_counter() - started},
        **trained.sessions[-1],
        "earlier_sessions": trained.sessions[:-1],
    }


def _train(
    config: Config,
    prepared: Setup,
    directory: Path,
    lock: Lock | None,
    session: dict[str, Any],
) -> tuple[Training, int | None]:
    """The module after training, and the step at which it diverged, if it did."""
    data, trainer, processes = prepared.data, prepared.trainer, prepared.processes
    device = torch.device(trainer.accelerator)
    train = training_batches(config, data, trainer, processes, device)
    test = data.test_batches(test_batch_size(prepared), device, processes)
    prepared.model.recompute = trainer.recompute
    if trainer.compile:
        for block in prepared.model.blocks:
            block.compile()
    module = Training(
        prepared.model,
        vocab_size=config.values.model.vocab_size,
        make_optimizer=partial(build_optimizer, config),
        warmup_steps=trainer.warmup_steps,
        total_steps=trainer.max_epochs * len(train) // trainer.accumulate,
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
    makers = prepared.loggers if processes.first else []
    loggers = [make(save_dir=directory, version=name, name=name) for make in makers]
    before = lock.check if lock else _nothing
    keep = KeepProgress(directory, trainer.checkpoint_seconds, loggers, before, processes)
    exit_code, diverged_at = 1, None
    try:
        for logger in loggers:
            logger.log_hyperparams(settings(config))
        trainer.make([keep], directory, processes).fit(module, train, test, ckpt_path=start)
        exit_code = 0
    except DivergedError as error:
        exit_code, diverged_at = 0, error.step
        log.warning("run %s diverged: %s", name, error)
    finally:
        keep.close(exit_code)
    return module, diverged_at


def _nothing() -> None:
    pass
