"""From configuration to objects."""

import tempfile
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import torch
from hydra.errors import HydraException
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf
from torch import nn
from torch.optim import Optimizer

from coefdyn.config.compose import Config, compose, one_sentence, options
from coefdyn.config.plugins import check_targets
from coefdyn.errors import ConfigError
from coefdyn.mixer.design import MissingTraitError
from coefdyn.mixer.sequence_mixer import SequenceMixer
from coefdyn.mixer.slots.evolution import Evolution
from coefdyn.mixer.slots.normalization import Normalization
from coefdyn.mixer.slots.preprocess import Preprocess
from coefdyn.mixer.slots.readout import Readout
from coefdyn.mixer.slots.scaling import Scaling
from coefdyn.model.blocks import Block
from coefdyn.model.model import AutoEncoderHead, NextTokenHead, SequenceModel
from coefdyn.model.position import Position
from coefdyn.tasks.task import Task

if TYPE_CHECKING:  # importing it takes seconds, which only training should spend
    from lightning.pytorch.loggers import Logger

DESIGN_SLOTS = ("evolution", "scaling", "readout", "normalization")
SLOTS = (*DESIGN_SLOTS, "block", "preprocess", "position")
KEYS = (
    "seed",
    "force",
    "check",
    "paths",
    "model",
    "task",
    "optimizer",
    "trainer",
    "population",
    "logger",
    "scale",
    "grid",
)
SWITCHES = ("d_mlp", "unit_qk", "max_strength", "factor", "base", "backend", "init")
SIZES = ("vocab_size", "max_length", "d_model", "n_state", "d_value", "n_heads", "n_layers")


def check_keys(config: Config) -> None:
    """What stands at the top, and is not checked where it is used."""
    values = config.values
    unknown = ", ".join(sorted(str(key) for key in values.keys() - KEYS))
    if unknown:
        raise ConfigError(f"the configuration does not know: {unknown}; it has {', '.join(KEYS)}")
    if type(values.get("seed")) is not int or not 0 <= values.seed < 2**63:
        raise ConfigError(f"seed={values.get('seed')} must be a whole number from 0 to 2^63 - 1")
    for name in ("force", "check"):
        if values.get(name, True) not in (True, False):
            raise ConfigError(f"{name}={values.get(name)} must be true or false")
    sections = ("paths", "model", "task", "optimizer", "trainer", "population")
    for name in sections:
        if not OmegaConf.is_dict(values.get(name)):
            raise ConfigError(f"{name}={values.get(name)} must be a section of the configuration")
    if not isinstance(values.paths.get("results"), str):
        raise ConfigError(f"paths.results={values.paths.get('results')} must be a directory")


def build(config: Config) -> SequenceModel:
    """The model of a composed configuration: the same seed gives the same weights."""
    check_keys(config)
    model = _checked_model(config)
    head = AutoEncoderHead if build_task(config).auto_encoder else NextTokenHead
    torch.manual_seed(config.values.seed)
    try:
        return SequenceModel(
            vocab_size=model.vocab_size,
            d_model=model.d_model,
            position=build_slot(model.position, Position),
            blocks=[build_block(config) for _ in range(model.n_layers)],
            head=head(model.d_model, model.vocab_size),
            init=model.init,
        )
    except ValueError as error:
        raise ConfigError(one_sentence(error)) from error


def build_task(config: Config) -> Task:
    settings = {k: v for k, v in config.values.task.items() if k not in ("name", "source", "seed")}
    task: Task = build_slot(OmegaConf.create(settings), Task)
    return task


def build_optimizer(config: Config, parameters: Iterable[nn.Parameter]) -> Optimizer:
    """The optimizer of a composed configuration, at its peak learning rate."""
    make = build_slot(config.values.optimizer, Optimizer)
    try:
        return make(list(parameters))
    except (TypeError, ValueError, IndexError, RuntimeError) as error:
        raise ConfigError(f"optimizer cannot be built: {one_sentence(error)}") from error


def build_logger(config: Config) -> "list[Callable[..., Logger]]":
    """What is logged to besides metrics.csv: one of Lightning's loggers, to be called with
    save_dir and version, or nothing."""
    if not config.values.get("logger"):
        return []
    from lightning.pytorch.loggers import Logger

    make = build_slot(config.values.logger, Logger)
    with tempfile.TemporaryDirectory() as directory:  # a missing package is known only when tried
        try:
            make(save_dir=directory, version="check", name="check")
        except Exception as error:  # each logger has errors of its own
            raise ConfigError(
                f"logger={config.choices.get('logger')} cannot be used: {one_sentence(error)}"
            ) from error
    return [make]


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
            preprocess=build_slot(model.preprocess, Preprocess),
        )
    except MissingTraitError as error:
        raise ConfigError(_remedy(config, error)) from error
    except (TypeError, ValueError) as error:
        raise ConfigError(one_sentence(error)) from error


def build_slot(config: Any, kind: type, **given: Any) -> Any:
    """An object of the class that `_target_` names, if that may be trusted and is of this kind; or
    with `_partial_` what makes one."""
    plain = OmegaConf.to_container(config) if OmegaConf.is_config(config) else config
    check_targets(plain, kind)
    try:
        return instantiate(config, _convert_="all", **given)
    except HydraException as error:
        cause = error.__cause__
        if isinstance(cause, ValueError):  # a constructor's own sentence
            raise ConfigError(str(cause)) from error
        target = config._target_
        raise ConfigError(f"{target} cannot be built: {one_sentence(cause or error)}") from error


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
    known = {*SLOTS, *SIZES, *SWITCHES}
    unknown = ", ".join(sorted(str(key) for key in model.keys() - known))
    if unknown:
        raise ConfigError(f"model does not know: {unknown}; it has {', '.join(sorted(known))}")
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
