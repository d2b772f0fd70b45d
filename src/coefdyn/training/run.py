"""One run, from a configuration to its record: what every way of launching calls."""

import hashlib
import logging
import time
import traceback
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch.loggers import WandbLogger
from omegaconf import OmegaConf

from coefdyn.analysis.coefficients import blocks_of, coefficient_statistics
from coefdyn.errors import ConfigError
from coefdyn.model import SequenceModel
from coefdyn.tasks.source import load
from coefdyn.tasks.task import Examples, Task
from coefdyn.training.batches import Batches, ShuffledBatches
from coefdyn.training.build import Config, build, build_logger, build_optimizer, build_task
from coefdyn.training.checkpoint import CHECKPOINT, KeepProgress
from coefdyn.training.module import DivergedError, Row, Training
from coefdyn.training.record import (
    provenance,
    read_record,
    run_id,
    settings,
    write_atomically,
    write_history,
    write_record,
)
from coefdyn.training.trainer import TrainerSettings, trainer_settings

log = logging.getLogger(__name__)

STATISTICS_SEQUENCES = 64
TEST_TOKENS = 2**13  # per test batch, or as many sequences as a training batch has


@dataclass(frozen=True)
class Prepared:
    """What a run needs besides a place for its results: made before anything is written."""

    task: Task
    train: Examples
    test: Examples
    model: SequenceModel
    trainer: TrainerSettings


def run_one(config: Config) -> dict[str, Any]:
    """Train, test, look at the coefficients, write the record; or find it already written."""
    name = run_id(config)
    directory = Path(config.values.paths.results) / "runs" / name
    found = read_record(directory / "record.json")
    if found is not None and not config.values.force:
        log.info("run %s is already recorded; force=true trains it again", name)
        return found
    started = time.perf_counter()
    prepared = prepare(config)
    _open_directory(directory, config)
    if found is not None:  # force: a finished run's checkpoint is no start for a new one
        (directory / "record.json").replace(directory / "record.old.json")
        (directory / CHECKPOINT).unlink(missing_ok=True)
    try:
        record = _train(config, prepared, name, directory)
    except ConfigError:
        raise
    except Exception:
        write_atomically(directory / "error.txt", traceback.format_exc())
        raise
    record["seconds"]["total"] = time.perf_counter() - started
    write_record(directory / "record.json", record)
    for leftover in ("error.txt", "record.old.json"):
        (directory / leftover).unlink(missing_ok=True)
    return record


def prepare(config: Config) -> Prepared:
    """Everything that a wrong configuration can spoil."""
    trainer = trainer_settings(settings(config)["trainer"])
    if trainer.threads is not None:
        torch.set_num_threads(trainer.threads)
    task, source = build_task(config), config.values.task
    if type(source.seed) is not int or source.seed < 0:
        raise ConfigError(f"task.seed={source.seed} must be a whole number of at least 0")
    train, test = (load(task, split, source.seed, source.source) for split in ("train", "test"))
    model = build(config)
    if config.values.model.vocab_size < task.vocab_size:
        raise ConfigError(
            f"model.vocab_size={config.values.model.vocab_size} is less than "
            f"task.vocab_size={task.vocab_size}; leave it out to have the same"
        )
    try:
        with torch.no_grad():
            model(torch.from_numpy(train.inputs[:1]))
    except ValueError as error:
        raise ConfigError(str(error)) from error
    build_optimizer(config, model.parameters())
    build_logger(config)
    return Prepared(task, train, test, model, trainer)


def _open_directory(directory: Path, config: Config) -> None:
    try:
        directory.mkdir(parents=True, exist_ok=True)
        write_atomically(directory / "config.yaml", OmegaConf.to_yaml(config.values))
    except OSError as error:
        raise ConfigError(
            f"paths.results={config.values.paths.results} cannot be written to: {error.strerror}"
        ) from error


def _train(config: Config, prepared: Prepared, name: str, directory: Path) -> dict[str, Any]:
    model, task, trainer = prepared.model, prepared.task, prepared.trainer
    device = torch.device(trainer.accelerator)
    train = ShuffledBatches(prepared.train, trainer.batch_size, device, config.values.seed)
    test = Batches(prepared.test, max(trainer.batch_size, TEST_TOKENS // task.length), device)
    module = Training(
        model,
        vocab_size=config.values.model.vocab_size,
        make_optimizer=partial(build_optimizer, config),
        warmup_steps=trainer.warmup_steps,
        total_steps=trainer.max_epochs * len(train),
        test_every=trainer.test_every,
        stop_at=trainer.stop_at,
    )
    checkpoint = directory / CHECKPOINT
    loggers = [make(save_dir=directory, version=name) for make in build_logger(config)]
    for logger in loggers:
        logger.log_hyperparams(settings(config))
    keep = KeepProgress(directory, trainer.checkpoint_seconds, loggers)
    if checkpoint.exists():
        log.info("run %s goes on from its checkpoint", name)
    diverged_at = None
    try:
        trainer.make([keep], directory).fit(
            module, train, test, ckpt_path=checkpoint if checkpoint.exists() else None
        )
    except DivergedError as error:
        diverged_at = error.step
        log.warning("run %s diverged: %s", name, error)
    finally:
        for logger in loggers:
            logger.finalize("success")
            if isinstance(logger, WandbLogger):  # or the process's next run would be logged to it
                logger.experiment.finish()
    write_history(directory / "metrics.csv", module.history)
    started = time.perf_counter()
    statistics = None
    if diverged_at is None:
        sample = torch.from_numpy(prepared.test.inputs[:STATISTICS_SEQUENCES]).to(device)
        statistics = coefficient_statistics(model.to(device).eval(), sample)
    return {
        "run_id": name,
        "status": "finished" if diverged_at is None else "diverged",
        "diverged_at_step": diverged_at,
        "metrics": metrics(module.history, task.chance),
        "coefficients": statistics,
        "epochs": module.history[-1]["epoch"] if module.history else 0,
        "steps": module.history[-1]["step"] if module.history else 0,
        "chance": task.chance,
        "config": settings(config),
        "choices": dict(config.choices),
        "backend": [block.mixer.form_used for block in blocks_of(model)],
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "data": {"train": _digest(prepared.train), "test": _digest(prepared.test)},
        "seconds": {**module.seconds, "statistics": time.perf_counter() - started},
        **provenance(device),
    }


def metrics(history: list[Row], chance: float) -> dict[str, float | None]:
    """The last test; the best beside it. A run that never had a finite test is at chance."""
    tests = [row for row in history if "test/accuracy" in row]
    last: Row = tests[-1] if tests else {}
    return {
        "test/accuracy": last.get("test/accuracy", chance),
        "test/accuracy_macro": last.get("test/accuracy_macro", chance),
        "test/accuracy_best": max((row["test/accuracy"] for row in tests), default=chance),
        "test/loss": last.get("test/loss"),
        "train/loss": history[-1]["train/loss"] if history else None,
    }


def _digest(examples: Examples) -> str:
    """Which data it was, whatever the source."""
    digest = hashlib.sha256()
    for side in examples:
        digest.update(side.tobytes())
    return digest.hexdigest()[:16]
