"""Which runs can be trained as one population, and whether they should be."""

import copy
import itertools
from collections.abc import Mapping
from typing import Any

from omegaconf import OmegaConf

from coefdyn.config.build import check_keys
from coefdyn.config.compose import Config
from coefdyn.errors import ConfigError
from coefdyn.mixer.backends import ADAPTERS
from coefdyn.runs.record import name_of

MODES = ("sequential", "fused", "auto")
VARIED = (("optimizer", "lr"), ("optimizer", "weight_decay"), ("seed",), ("task", "seed"))
# Tokens of a member's batch up to which auto fuses, by device; `suite=population` measures it. The
# number for GPUs is an estimate.
FUSED_TOKENS = {"cpu": 2048, "cuda": 2**15}
MEMBERS = 16  # of a population, at most


def kin(values: Mapping[str, Any]) -> str:
    """The same for runs that can be members of one population."""
    rest = copy.deepcopy(dict(values))
    for *parents, name in VARIED:
        section = rest
        for parent in parents:
            section = section[parent]
        section[name] = 0
    return name_of(rest)


def is_fused(values: Mapping[str, Any]) -> bool:
    """Whether these settings ask for it; ConfigError if they cannot have it."""
    mode = values["population"]["mode"]
    _check_mode(mode)
    if mode == "sequential":
        return False
    why = obstacle(values)
    if mode == "fused" and why:
        raise ConfigError(f"population.mode=fused cannot be had: {why}; use auto or sequential")
    if mode == "fused" or why:
        return not why
    tokens = values["trainer"]["batch_size"] * values["task"]["seq_len"]
    # An accelerator that is not there is for the trainer to refuse.
    return bool(tokens <= FUSED_TOKENS.get(values["trainer"]["devices"]["accelerator"], 0))


def _check_mode(mode: Any) -> None:
    if mode not in MODES:
        raise ConfigError(f"population.mode={mode} is not known; choose from {', '.join(MODES)}")


def obstacle(values: Mapping[str, Any]) -> str | None:
    """Why runs with these settings cannot be members, or None if they can."""
    optimizer, devices = values["optimizer"], values["trainer"]["devices"]
    known = {"_target_", "_partial_", "lr", "weight_decay", "betas", "eps", "fused"}
    if values["model"]["backend"] in ADAPTERS:
        return f"model.backend={values['model']['backend']} is for single runs"
    if values["task"]["name"] == "wikitext103":
        return "text fills a device with one model"
    if optimizer.get("_target_") != "torch.optim.AdamW" or optimizer.keys() - known:
        return "its optimizer is AdamW with lr, weight_decay, betas and eps"
    if values.get("logger"):
        return "only metrics.csv is written per member; use logger=csv"
    if devices["strategy"] != "single" or devices["recompute"] or devices["compile"]:
        return "trainer.devices.strategy, recompute and compile are for single runs"
    return None


def listed_members(config: Config) -> list[Config]:
    """The runs that population.lr, weight_decay and seed list, or the one run."""
    check_keys(config)
    given = config.values.population
    _check_mode(given.get("mode"))
    axes = {"lr": "optimizer.lr", "weight_decay": "optimizer.weight_decay", "seed": "seed"}
    unknown = given.keys() - {"mode", *axes}
    if unknown:
        raise ConfigError(f"population does not know: {', '.join(sorted(map(str, unknown)))}")
    chosen: dict[str, list[Any]] = {}
    for name, key in axes.items():
        values = given.get(name)
        if values is None:
            continue
        numbers = list(values) if OmegaConf.is_list(values) else []
        if not numbers or not all(type(x) in (int, float) for x in numbers):
            raise ConfigError(f"population.{name}={values} must be a list of numbers, or null")
        chosen[key] = numbers
    found = []
    for point in itertools.product(*chosen.values()):
        values = copy.deepcopy(config.values)
        for key, value in zip(chosen, point, strict=True):
            OmegaConf.update(values, key, value)
        found.append(Config(values, config.choices))
    return found
