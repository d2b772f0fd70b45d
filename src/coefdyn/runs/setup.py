"""Preparing a run: whatever a wrong configuration breaks fails here, before a file is written."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from lightning.pytorch.loggers import Logger

from coefdyn.config.build import build_logger, build_model, build_optimizer, build_task
from coefdyn.config.compose import Config, one_sentence
from coefdyn.config.schema import Trainer
from coefdyn.errors import ConfigError
from coefdyn.mixer.backends import ADAPTERS
from coefdyn.model.coefficient_statistics import own_forms
from coefdyn.model.model import SequenceModel, mixers_of
from coefdyn.runs.batches import TEST_TOKENS, Resumable
from coefdyn.runs.data import Data, data_of
from coefdyn.runs.final_tests import check_positions
from coefdyn.runs.processes import ALONE, Processes, join
from coefdyn.runs.trainer import autocast, check_devices
from coefdyn.runs.trials import keep_trials, recall_trials
from coefdyn.tasks.task import Task

DEFAULT_THREADS = torch.get_num_threads()
# Batch tokens times parameters. Up to this size a second thread does not pay. Measured: with two
# threads a step takes 0.97 to 1.4 of the time below this size, and 0.7 to 1.0 above it.
ONE_THREAD = 2**27


@dataclass(frozen=True)
class Setup:
    """Everything a run needs besides a folder for its results."""

    config: Config
    task: Task
    data: Data
    model: SequenceModel
    loggers: list[Callable[..., Logger]]
    processes: Processes = ALONE

    @property
    def trainer(self) -> Trainer:
        return self.config.settings.trainer

    @property
    def device(self) -> torch.device:
        return torch.device(self.trainer.devices.accelerator)

    @property
    def test_batch_size(self) -> int:
        """At least as many sequences as a training batch."""
        return max(self.trainer.batch_size, TEST_TOKENS // self.task.length)

    def training_batches(self) -> Resumable:
        return _training_batches(self.config, self.data, self.processes, self.device)


def set_up(config: Config) -> Setup:
    """Build and try everything a run needs; ConfigError if the configuration is wrong."""
    try:
        settings = config.settings
        devices = settings.trainer.devices
        check_devices(devices)
        processes = join(devices.strategy == "ddp", devices.accelerator)
        task = build_task(config)
        data = data_of(task, settings.task, settings.trainer.stop_at is not None)
        _training_batches(config, data, processes, torch.device("cpu"))
        model = build_model(config)
        if settings.model.vocab_size < task.vocab_size:
            raise ConfigError(
                f"model.vocab_size={settings.model.vocab_size} is less than "
                f"task.vocab_size={task.vocab_size}; leave it out to have the same"
            )
        torch.set_num_threads(devices.threads or _threads(model, settings.trainer, task))
        _try(model, data, settings.trainer)
        check_positions(model, data.final_tests)
        _try_final_tests(model, data)
        build_optimizer(config, model.parameters())
        loggers = build_logger(config)
    except ValueError as error:
        raise ConfigError(one_sentence(error)) from error
    return Setup(config, task, data, model, loggers, processes)


def _threads(model: SequenceModel, trainer: Trainer, task: Task) -> int:
    """The default number of threads for a model of this size."""
    tokens = trainer.batch_size * task.length
    work = tokens * sum(parameter.numel() for parameter in model.parameters())
    return 1 if work <= ONE_THREAD else DEFAULT_THREADS


def _training_batches(
    config: Config, data: Data, processes: Processes, device: torch.device
) -> Resumable:
    trainer = config.settings.trainer
    size, parts = trainer.batch_size, trainer.devices.accumulate
    return data.training_batches(size, device, config.settings.seed, parts, processes)


def _try(model: SequenceModel, data: Data, trainer: Trainer) -> None:
    """Pass sequences through the model.

    On a CPU one is enough, forward. Where kernels may compute, it is a whole batch, forward and
    backward, on the device of the run: they are tried at the shape they will have.
    """
    device = torch.device(trainer.devices.accelerator)
    names = {mixer.backend for mixer in mixers_of(model)}
    if device.type == "cpu" and not names & ADAPTERS.keys():
        with torch.no_grad():
            model(torch.from_numpy(data.sample(1)))
        return
    size = trainer.batch_size // trainer.devices.accumulate
    sample = data.sample(size)
    inputs = torch.from_numpy(np.resize(sample, (size, sample.shape[1])))
    recall_trials()
    try:
        with autocast(trainer, device):
            model.to(device).train()(inputs.to(device)).sum().backward()
    except ValueError:
        raise
    except Exception as error:  # a package may raise anything
        named = next(iter(names & ADAPTERS.keys()), "auto")
        message = one_sentence(error)
        raise ConfigError(f"model.backend={named} fails here: {message}; use quadratic") from error
    keep_trials()
    model.zero_grad()


@torch.no_grad()
def _try_final_tests(model: SequenceModel, data: Data) -> None:
    """Pass one of the longest sequences through the model, in the forms that will test it."""
    longest = max(data.final_tests.values(), key=lambda test: test.length, default=None)
    if longest is not None:
        inputs = torch.from_numpy(longest.examples.inputs[:1])
        with own_forms(model):
            model(inputs.to(next(model.parameters()).device))
