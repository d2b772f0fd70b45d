"""From configuration to objects: the only module that knows Hydra."""

import importlib
import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from hydra import compose as hydra_compose
from hydra import initialize_config_dir
from hydra.errors import HydraException
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from coefdyn.blocks import Block
from coefdyn.mixer.design import MissingTraitError
from coefdyn.mixer.evolution import Evolution
from coefdyn.mixer.normalization import Normalization
from coefdyn.mixer.readout import Readout
from coefdyn.mixer.scaling import Scaling
from coefdyn.mixer.sequence_mixer import SequenceMixer
from coefdyn.model import SequenceModel
from coefdyn.position import Position

CONF = Path(__file__).parents[3] / "conf"
DESIGN_SLOTS = ("evolution", "scaling", "readout", "normalization")
SLOTS = (*DESIGN_SLOTS, "block", "preprocess", "position")
SIZES = ("vocab_size", "max_length", "d_model", "n_state", "d_value", "n_heads", "n_layers")
TRUSTED = ("coefdyn", "torch", "lightning")


class ConfigError(ValueError):
    """What was asked for cannot be built; the message is for the user."""


@dataclass(frozen=True)
class Config:
    """A composed configuration, and the name chosen in each group, such as model/readout: exp."""

    values: DictConfig
    choices: Mapping[str, str]


def compose(overrides: Sequence[str] = (), name: str = "train") -> Config:
    """Compose conf/<name>.yaml with command-line style overrides."""
    try:
        with initialize_config_dir(str(CONF), version_base="1.3"):
            values = hydra_compose(name, list(overrides), return_hydra_config=True)
        choices = {
            str(group): str(choice)
            for group, choice in values.hydra.runtime.choices.items()
            if not str(group).startswith("hydra/")
        }
        OmegaConf.set_struct(values, False)
        del values["hydra"]
        OmegaConf.set_struct(values, True)
        OmegaConf.resolve(values)
    except (HydraException, OmegaConfBaseException, ValueError) as error:
        raise ConfigError(_one_sentence(error)) from error
    return Config(values, choices)


def options(group: str) -> list[str]:
    """The choices of a group, from the files of conf/<group>."""
    return sorted(path.stem for path in (CONF / group).glob("*.yaml"))


def build(config: Config) -> SequenceModel:
    """The model of a composed configuration: the same seed gives the same weights."""
    model = _checked_model(config)
    torch.manual_seed(config.values.seed)
    try:
        return SequenceModel(
            vocab_size=model.vocab_size,
            d_model=model.d_model,
            position=build_slot(model.position, Position),
            blocks=[build_block(config) for _ in range(model.n_layers)],
            init=model.init,
        )
    except ValueError as error:
        raise ConfigError(_one_sentence(error)) from error


def build_block(config: Config) -> Block:
    """One block with a mixer of its own."""
    model = _checked_model(config)
    block: Block = build_slot(
        model.block,
        Block,
        mixer=build_mixer(config),
        d_model=model.d_model,
        d_value=model.d_value,
        n_heads=model.n_heads,
        d_mlp=model.d_mlp,
    )
    return block


def build_mixer(config: Config) -> SequenceMixer:
    model = _checked_model(config)
    try:
        return SequenceMixer(
            d_model=model.d_model,
            n_state=model.n_state,
            d_value=model.d_value,
            n_heads=model.n_heads,
            unit_qk=model.unit_qk,
            backend=model.backend,
            evolution=build_slot(model.evolution, Evolution),
            scaling=build_slot(model.scaling, Scaling),
            readout=build_slot(model.readout, Readout),
            normalization=build_slot(model.normalization, Normalization),
            preprocess=build_slot(model.preprocess, partial),
        )
    except MissingTraitError as error:
        raise ConfigError(_remedy(config, error)) from error
    except (TypeError, ValueError) as error:
        raise ConfigError(_one_sentence(error)) from error


def build_slot(config: DictConfig, kind: type, **given: Any) -> Any:
    """An object of the class that `_target_` names, if that may be trusted and is of this kind."""
    _check_targets(OmegaConf.to_container(config))
    try:
        slot = instantiate(config, _convert_="all", **given)
    except HydraException as error:
        cause = error.__cause__
        if isinstance(cause, ValueError):  # a constructor's own sentence
            raise ConfigError(str(cause)) from error
        target = config._target_
        raise ConfigError(f"{target} cannot be built: {_one_sentence(cause or error)}") from error
    if not isinstance(slot, kind):
        raise ConfigError(f"_target_={config._target_} is not a {kind.__name__}")
    return slot


def _checked_model(config: Config) -> DictConfig:
    """conf's `model` with its slots, sizes and switches in order."""
    model = config.values.model
    if not isinstance(model, DictConfig) or not all(OmegaConf.is_dict(model.get(s)) for s in SLOTS):
        raise ConfigError(
            f"model needs all of its slots: {', '.join(SLOTS)}; choose a model preset"
        )
    for name in SIZES:
        if type(model[name]) is not int or model[name] < 1:
            raise ConfigError(f"model.{name}={model[name]} must be a whole number of at least 1")
    if model.d_mlp is not None and (type(model.d_mlp) is not int or model.d_mlp < 1):
        raise ConfigError(
            f"model.d_mlp={model.d_mlp} must be a whole number of at least 1, or null for no MLP"
        )
    for name, value in (("unit_qk", model.unit_qk), ("block.gated", model.block.get("gated"))):
        if value not in (True, False):
            raise ConfigError(f"model.{name}={value} must be true or false")
    if type(config.values.seed) is not int or config.values.seed < 0:
        raise ConfigError(f"seed={config.values.seed} must be a whole number of at least 0")
    return model


def _remedy(config: Config, error: MissingTraitError) -> str:
    """The mixer knows the missing trait; which files of conf/ have it is known here."""
    chosen = config.choices
    fitting = []
    for option in options("model/evolution"):
        other = dict(config.choices) | {"model/evolution": option}
        groups = [f"{group}={choice}" for group, choice in other.items() if choice != "None"]
        if getattr(build_slot(compose(groups).values.model.evolution, Evolution), error.trait):
            fitting.append(option)
    return (
        f"model/scaling={chosen['model/scaling']}: {error.need}, but "
        f"model/evolution={chosen['model/evolution']} has none; "
        f"choose model/evolution from {', '.join(fitting)}, or another scaling"
    )


def _check_targets(node: Any) -> None:
    """Every `_target_` must be a class defined in coefdyn, torch or lightning.

    The root is checked before importing, and the class's own module after: a trusted module may
    have imported something that is not.
    """
    if isinstance(node, Mapping):
        if "_target_" in node:
            _check_target(str(node["_target_"]))
        for value in node.values():
            _check_targets(value)
    elif isinstance(node, list):
        for value in node:
            _check_targets(value)


def _check_target(target: str) -> None:
    module_name, _, name = target.rpartition(".")
    refusal = f"_target_={target} is refused: it must be a class of {', '.join(TRUSTED)}"
    if target.partition(".")[0] not in TRUSTED:
        raise ConfigError(refusal)
    try:
        found = getattr(importlib.import_module(module_name), name)
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"_target_={target} does not exist") from error
    if not inspect.isclass(found) or found.__module__.partition(".")[0] not in TRUSTED:
        raise ConfigError(refusal)


def _one_sentence(error: BaseException) -> str:
    """Hydra's message on one line, with the options it lists but not where it looked for them."""
    message, _, _ = str(error).partition("Config search path")
    head, found, listed = message.partition("Available options in ")
    if not found:
        return " ".join(message.split())
    group, *names = listed.split()
    return f"{' '.join(head.split())}; choose {group} {', '.join(names)}"
