"""Everything that a wrong configuration can spoil, done before anything is written."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from lightning.pytorch.loggers import Logger
from omegaconf.errors import OmegaConfBaseException

from coefdyn.config.build import build, build_logger, build_optimizer, build_task
from coefdyn.config.compose import Config, settings
from coefdyn.errors import ConfigError
from coefdyn.mixer.backends import ADAPTERS
from coefdyn.model.coefficient_statistics import blocks_of
from coefdyn.model.model import SequenceModel
from coefdyn.runs.batches import Resumable
from coefdyn.runs.data import Data, data_of
from coefdyn.runs.processes import ALONE, Processes, join
from coefdyn.runs.trainer import TrainerSettings, trainer_settings
from coefdyn.tasks.task import Task

TEST_TOKENS = 2**13  # per test batch, or as many sequences as a training batch has
DEFAULT_THREADS = torch.get_num_threads()


@dataclass(frozen=True)
class Setup:
    """What a run needs besides a place for its results: made before anything is written."""

    task: Task
    data: Data
    model: SequenceModel
    trainer: TrainerSettings
    loggers: list[Callable[..., Logger]]
    processes: Processes = ALONE


def set_up(config: Config) -> Setup:
    """Everything that a wrong configuration can spoil."""
    try:
        trainer = trainer_settings(settings(config)["trainer"])
        torch.set_num_threads(trainer.threads or DEFAULT_THREADS)
        processes = join(trainer.distributed, trainer.accelerator)
        task = build_task(config)
        data = data_of(task, config.values.task)
        training_batches(config, data, trainer, processes, torch.device("cpu"))
        model = build(config)
        if config.values.model.vocab_size < task.vocab_size:
            raise ConfigError(
                f"model.vocab_size={config.values.model.vocab_size} is less than "
                f"task.vocab_size={task.vocab_size}; leave it out to have the same"
            )
        _try(model, torch.from_numpy(data.sample(1)), trainer)
        build_optimizer(config, model.parameters())
        loggers = build_logger(config)
        _check_finite(settings(config))
    except (ValueError, OmegaConfBaseException) as error:
        raise ConfigError(" ".join(str(error).split())) from error
    return Setup(task, data, model, trainer, loggers, processes)


def _try(model: SequenceModel, inputs: torch.Tensor, trainer: TrainerSettings) -> None:
    """One sequence through the model: on a CPU, or where a kernel was asked for by name, as the
    run will do it, and back."""
    name = next(blocks_of(model)).mixer.backend
    if name not in ADAPTERS:
        with torch.no_grad():
            model(inputs)
        return
    device = torch.device(trainer.accelerator)
    try:
        with trainer.autocast(device):
            model.to(device)(inputs.to(device)).sum().backward()
    except ValueError:
        raise
    except Exception as error:  # whatever a package may raise
        said = " ".join(str(error).split())
        raise ConfigError(f"model.backend={name} fails here: {said}; use auto") from error
    model.zero_grad()


def training_batches(
    config: Config,
    data: Data,
    trainer: TrainerSettings,
    processes: Processes,
    device: torch.device,
) -> Resumable:
    size, parts = trainer.batch_size, trainer.accumulate
    return data.training_batches(size, device, config.values.seed, parts, processes)


def _check_finite(node: Any, name: str = "") -> None:
    """What is not finite could not be recorded, and would be found out after the training."""
    if isinstance(node, dict):
        for key, value in node.items():
            _check_finite(value, f"{name}.{key}".strip("."))
    elif isinstance(node, float) and not math.isfinite(node):
        raise ConfigError(f"{name}={node} is infinite or NaN; it must be a finite number")


def test_batch_size(prepared: Setup) -> int:
    return max(prepared.trainer.batch_size, TEST_TOKENS // prepared.task.length)
