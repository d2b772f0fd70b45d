"""Which runs can be trained as one population, and whether they should be."""

import itertools
from collections.abc import Mapping
from typing import Any

from coefdyn.config.compose import Config, compose
from coefdyn.config.identity import run_id
from coefdyn.errors import ConfigError
from coefdyn.mixer.backends import ADAPTERS

VARIED = {"optimizer.lr": 0, "optimizer.weight_decay": 0, "seed": 0, "task.seed": 0}
# mode=auto fuses members whose batch has at most so many tokens. `coefdyn bench suite=population`
# measures it; the number for GPUs is an estimate.
FUSED_TOKENS = {"cpu": 512, "cuda": 2**15}
MEMBERS = 16  # largest population


def family(config: Config) -> str:
    """A name that runs share if they can be members of one population."""
    return run_id(config.with_values(VARIED).values)


def is_fused(config: Config) -> bool:
    """Whether runs with these settings are trained at once; ConfigError if mode=fused cannot be."""
    settings = config.settings
    mode = settings.population.mode
    if mode == "sequential":
        return False
    why = obstacle(config)
    if mode == "fused" and why:
        raise ConfigError(f"population.mode=fused is not possible: {why}; use auto or sequential")
    if mode == "fused" or why:
        return not why
    tokens = settings.trainer.batch_size * settings.task["seq_len"]
    return bool(tokens <= FUSED_TOKENS[settings.trainer.devices.accelerator])


def obstacle(config: Config) -> str | None:
    """Why runs with these settings cannot be members, or None if they can."""
    settings = config.settings
    optimizer, devices = settings.optimizer, settings.trainer.devices
    known = {"_target_", "_partial_", "lr", "weight_decay", "betas", "eps", "fused"}
    if settings.model.backend in ADAPTERS:
        return f"model.backend={settings.model.backend} is for single runs"
    if settings.model.mixer is not None:
        return "a foreign mixer may not work under torch.func.vmap"
    if "seq_len" not in settings.task or "data" in settings.task:
        return "one model on text is enough work for a device"
    if optimizer.get("_target_") != "torch.optim.AdamW" or optimizer.keys() - known:
        return "it needs AdamW with lr, weight_decay, betas and eps only"
    if settings.logger:
        return "only metrics.csv is written per member; use logger=csv"
    if devices.strategy != "single" or devices.recompute or devices.compile:
        return "trainer.devices.strategy, recompute and compile are for single runs"
    return None


def listed_members(config: Config) -> list[Config]:
    """The runs that population.lr, weight_decay and seed list; without a list, the one run."""
    population = config.settings.population
    lists: Mapping[str, list[Any] | None] = {
        "optimizer.lr": population.lr,
        "optimizer.weight_decay": population.weight_decay,
        "seed": population.seed,
    }
    axes = {key: values for key, values in lists.items() if values is not None}
    for key, values in axes.items():
        if not values:
            name = key.rpartition(".")[2]
            raise ConfigError(f"population.{name}=[] must be a list of numbers, or null")
    points = itertools.product(*([f"{key}={v}" for v in values] for key, values in axes.items()))
    return [compose([*config.overrides, *point]) for point in points] if axes else [config]
