"""Logging besides metrics.csv: Weights & Biases, TensorBoard or another of Lightning's loggers."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from lightning.pytorch.loggers import Logger, TensorBoardLogger, WandbLogger

from coefdyn.config.compose import Config, compose
from coefdyn.runs.record import Record, Row


class Loggers:
    """The loggers of a run, from its first epoch to its record.

    Of several processes only the first has loggers.
    """

    def __init__(
        self, makers: Sequence[Callable[..., Logger]], config: Config, directory: Path
    ) -> None:
        self.all = [_made(make, config, directory) for make in makers]
        choices = {name: value for name, value in config.choices.items() if value != "None"}
        for logger in self.all:
            logger.log_hyperparams(config.values | {"choices": choices})

    def epoch(self, row: Row) -> None:
        numbers = {name: float(x) for name, x in row.items() if x is not None}
        for logger in self.all:
            logger.log_metrics(numbers, step=int(row["step"]))

    def end(self, record: Record | None) -> None:
        """Log every number of the record and close. None: the run failed, or resumes later."""
        for logger in self.all:
            if record is not None:
                _summarize(logger, dict(_numbers(record)))
            logger.finalize("success" if record is not None else "failed")
            if isinstance(logger, WandbLogger):  # or the next run would be logged to it too
                logger.experiment.finish(exit_code=0 if record is not None else 1)
        self.all = []


def _made(make: Callable[..., Logger], config: Config, directory: Path) -> Logger:
    """The logger, with the run_id as its version and a readable name where it takes one."""
    target = str((config.settings.logger or {}).get("_target_", ""))
    arguments: dict[str, Any] = {"save_dir": directory, "version": directory.name}
    if target.endswith("WandbLogger"):
        experiment = config.choices.get("experiment", "None")
        group = "runs" if experiment == "None" else experiment
        tags = [config.choices[name] for name in ("model", "task", "scale")]
        arguments |= {"name": title(config), "group": group, "tags": tags}
    else:
        arguments["name"] = "tensorboard" if target.endswith("TensorBoardLogger") else title(config)
    return make(**arguments)


def title(config: Config) -> str:
    """A readable name of a run: preset, slots that differ from the preset's, task, learning rate
    and seed."""
    choices, values = config.choices, config.values
    plugins = [f"plugins=[{','.join(values['plugins'])}]"] if values["plugins"] else []
    preset = compose([f"model={choices['model']}", *plugins]).choices
    slots = [
        f"{name.removeprefix('model/')}={value}"
        for name, value in choices.items()
        if name.startswith("model/") and preset.get(name) != value
    ]
    lr = values["optimizer"].get("lr")
    return " ".join([choices["model"], *slots, choices["task"], f"lr={lr}",
                     f"seed={values['seed']}"])  # fmt: skip


def _numbers(record: Record) -> Mapping[str, float]:
    values = {**record.metrics, "chance": record.chance, "parameters": record.parameters,
              "epochs": record.epochs, "seconds": record.seconds.get("training")}  # fmt: skip
    values |= {f"coefficients/{name}": value for name, value in (record.coefficients or {}).items()}
    return {name: float(x) for name, x in values.items() if isinstance(x, int | float)}


def _summarize(logger: Logger, numbers: dict[str, float]) -> None:
    if isinstance(logger, WandbLogger):
        logger.experiment.summary.update(numbers)
    elif isinstance(logger, TensorBoardLogger):
        logger.log_hyperparams({}, numbers)
    else:
        logger.log_metrics(numbers)
