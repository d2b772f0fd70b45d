"""Runs from disk: one as an object, many as a table."""

import json
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from coefdyn.config.build import build_model, build_task
from coefdyn.config.compose import Config
from coefdyn.config.plugins import from_environment
from coefdyn.errors import ConfigError
from coefdyn.mixer.stream import Coefficients
from coefdyn.model.coefficient_statistics import layers_of, own_forms
from coefdyn.model.model import SequenceModel
from coefdyn.runs.archive import record_of, recorded
from coefdyn.runs.record import OtherSchemaError, Record
from coefdyn.tasks.task import Task

# Settings that say where values came from or how a command was called, not what was run.
NOT_OF_A_RUN = ("scale", "grid", "paths", "plugins", "logger", "force", "check", "population")


@dataclass(frozen=True)
class Run:
    """A recorded run in its folder.

    `plugins` are those that the caller trusts. Plugins that only the record names are not imported.
    """

    folder: Path
    record: Record
    plugins: tuple[str, ...] = ()

    @property
    def run_id(self) -> str:
        return self.record.run_id

    @cached_property
    def config(self) -> Config:
        """The configuration it was trained with."""
        values = {**self.record.config, "plugins": [*self.plugins]}
        return Config(values, self.record.choices)

    @cached_property
    def history(self) -> pd.DataFrame:
        """A row per epoch: step, learning rate, losses, and accuracies where it was tested."""
        return pd.DataFrame(self.record.history)

    def model(self) -> SequenceModel:
        """The model with its trained weights, in evaluation mode, on the CPU."""
        from coefdyn.runs.checkpoint import load_weights  # slow to import

        model = build_model(self.config)
        load_weights(self.folder, model)
        return model.eval()

    def task(self) -> Task:
        """The task it was trained on; `.generate("test", seed).inputs` are tokens (b t)."""
        return build_task(self.config)

    @torch.no_grad()
    def coefficients(self, inputs: Any) -> list[Coefficients]:
        """alpha (b h i j), eta (b h i) and guarded rows of each layer, for tokens (b t)."""
        model = self.model()
        tokens = inputs if isinstance(inputs, Tensor) else torch.as_tensor(inputs)
        with own_forms(model):
            return list(layers_of(model, tokens))

    def __repr__(self) -> str:
        choices, accuracy = self.record.choices, self.record.metrics.get("test/accuracy")
        about = f"{choices.get('model')} on {choices.get('task')}, {self.record.status}"
        return f"Run({self.run_id}: {about}, accuracy {accuracy:.4f})"


def load_run(folder: str | Path, plugins: Sequence[str] = ()) -> Run:
    """The run in a folder, such as results/runs/<run_id>."""
    place = Path(folder)
    place = place.parent if place.name == "record.json" else place
    record = record_of(place)
    if record is None:
        raise ConfigError(f"{place} has no record: no run has been finished there")
    return Run(place, record, (*plugins, *from_environment()))


def load_runs(results: str | Path) -> pd.DataFrame:
    """A row per recorded run of a results folder, indexed by run_id.

    Columns are choices (readout), settings (optimizer.lr), metrics (test/accuracy) and statistics
    of the coefficients (near_zero).
    """
    place = Path(results)
    if not place.is_dir():
        raise ConfigError(f"there is no folder {place}; give the one that holds runs/")
    rows, skipped = [], 0
    for folder in recorded(place):
        try:
            record = record_of(folder)
        except OtherSchemaError:
            skipped += 1
            continue
        rows += [flat(record)] if record is not None else []
    if skipped:
        warnings.warn(f"{skipped} runs in {place} are of another schema: left out", stacklevel=2)
    return pd.DataFrame(rows, index=pd.Index([row["run_id"] for row in rows], name="run_id")).drop(
        columns="run_id", errors="ignore"
    )


def flat(record: Record) -> dict[str, Any]:
    """A record as one row of a table: column -> value."""
    choices = {k.removeprefix("model/"): v for k, v in record.choices.items() if v != "None"}
    statistics = {k: v for k, v in (record.coefficients or {}).items() if _is_plain(v)}
    return {
        "run_id": record.run_id,
        **choices,
        "status": record.status,
        "diverged_at_step": record.diverged_at_step,
        **record.metrics,
        "chance": record.chance,
        "order_free": record.order_free,
        "ceiling": record.ceiling,
        **statistics,
        **{f"initial.{name}": value for name, value in (record.initial or {}).items()},
        "epochs": record.epochs,
        "steps": record.steps,
        "parameters": record.parameters,
        "seconds": record.seconds.get("session"),
        **dict(_settings(record.config)),
    }


def _settings(node: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in node.items():
        name = f"{prefix}{key}"
        if name in NOT_OF_A_RUN:
            continue
        if isinstance(value, Mapping):
            yield from _settings(value, f"{name}.")
        else:
            yield name, value if _is_plain(value) else json.dumps(value)


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, str | int | float)
