"""How a run is carried out: the `trainer` section of a configuration, checked, and Lightning's
Trainer made from it."""

import logging
import math
import sys
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import Callback, RichProgressBar
from lightning.pytorch.strategies import DDPStrategy

from coefdyn.errors import ConfigError
from coefdyn.runs.checkpoint import AtomicFiles
from coefdyn.runs.processes import ALONE, Processes, environment

PRECISIONS = {"fp32": "32-true", "bf16-mixed": "bf16-mixed"}
ACCELERATORS = ("cpu", "cuda")
STRATEGIES = ("single", "ddp")


@dataclass(frozen=True)
class TrainerSettings:
    """The `trainer` section; conf/trainer/cpu.yaml says what each value is."""

    max_epochs: int
    batch_size: int
    warmup_steps: int
    clip: float | None
    precision: str
    stop_at: float | None
    test_every: int
    checkpoint_seconds: float
    accelerator: str
    strategy: str
    threads: int | None
    accumulate: int
    recompute: bool
    compile: bool

    @property
    def distributed(self) -> bool:
        return self.strategy == "ddp"

    def autocast(self, device: torch.device) -> torch.autocast:
        """What Lightning computes in, for what is computed without it."""
        return torch.autocast(device.type, torch.bfloat16, enabled=self.precision == "bf16-mixed")

    def make(
        self, callbacks: Sequence[Callback], directory: Path, processes: Processes = ALONE
    ) -> pl.Trainer:
        """Lightning's Trainer: our checkpoints and metrics file instead of its own."""
        bar = [RichProgressBar(refresh_rate=10, console_kwargs={"stderr": True})]
        show = sys.stderr.isatty() and processes.first
        logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
        with warnings.catch_warnings():
            # It advises to use a GPU that is there; trainer=cpu has been asked for.
            warnings.filterwarnings("ignore", message="GPU available but not used")
            return pl.Trainer(
                accelerator=self.accelerator,
                devices=processes.world // processes.nodes,
                num_nodes=processes.nodes,
                strategy=DDPStrategy() if processes.world > 1 else "auto",
                use_distributed_sampler=False,  # our batches know their share
                precision=PRECISIONS[self.precision],  # type: ignore[arg-type]
                max_epochs=self.max_epochs,
                accumulate_grad_batches=self.accumulate,
                gradient_clip_val=self.clip,
                num_sanity_val_steps=0,
                logger=False,
                enable_checkpointing=True,
                callbacks=[*callbacks, *(bar if show else [])],
                plugins=[AtomicFiles(), environment(self.distributed)],
                enable_progress_bar=show,
                enable_model_summary=False,
                default_root_dir=directory,
            )


def trainer_settings(values: Mapping[str, Any]) -> TrainerSettings:
    """The section's values, if they can be used."""
    given = dict(values)
    devices = given.pop("devices", None)
    given |= devices if isinstance(devices, Mapping) else {}
    names = {field.name for field in fields(TrainerSettings)}
    if given.keys() != names:
        wrong = ", ".join(sorted(given.keys() ^ names))
        raise ConfigError(f"the trainer section lacks or does not know: {wrong}")
    for name, least in (
        ("max_epochs", 1),
        ("batch_size", 1),
        ("warmup_steps", 0),
        ("test_every", 1),
        ("accumulate", 1),
    ):
        if type(given[name]) is not int or given[name] < least:
            raise _wrong(name, given, f"must be a whole number of at least {least}")
    for name in ("recompute", "compile"):
        if type(given[name]) is not bool:
            raise _wrong(name, given, "must be true or false")
    if given["threads"] is not None and (type(given["threads"]) is not int or given["threads"] < 1):
        raise _wrong("threads", given, "must be a whole number of at least 1, or null")
    for name in ("clip", "stop_at", "checkpoint_seconds"):
        optional = name != "checkpoint_seconds"
        if given[name] is None and optional:
            continue
        if type(given[name]) not in (int, float) or not 0 < given[name] < math.inf:
            raise _wrong(name, given, "must be a number above 0" + ", or null" * optional)
        given[name] = float(given[name])
    for name, known in (
        ("precision", PRECISIONS),
        ("accelerator", ACCELERATORS),
        ("strategy", STRATEGIES),
    ):
        if given[name] not in known:
            raise _wrong(name, given, f"is not known; choose from {', '.join(known)}")
    if given["accelerator"] == "cuda" and not torch.cuda.is_available():
        raise _wrong("accelerator", given, "finds no GPU; use trainer=cpu")
    return TrainerSettings(**given)


def _wrong(name: str, given: Mapping[str, Any], why: str) -> ConfigError:
    of_devices = ("accelerator", "strategy", "threads", "accumulate", "recompute", "compile")
    section = "trainer.devices" if name in of_devices else "trainer"
    return ConfigError(f"{section}.{name}={given[name]} {why}")
