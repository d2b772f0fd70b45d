"""Builds the objects that a configuration names: models, tasks, optimizers, loggers."""

import copy
import tempfile
from collections.abc import Callable, Iterable, Mapping
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import torch
from hydra.errors import HydraException
from hydra.utils import instantiate
from torch import nn
from torch.optim import Optimizer

from coefdyn import adamw
from coefdyn.config.compose import Config, compose, one_sentence
from coefdyn.config.pattern import layers_of
from coefdyn.config.plugins import check_targets, options
from coefdyn.config.schema import Slot
from coefdyn.errors import ConfigError
from coefdyn.mixer.sequence_mixer import SequenceMixer
from coefdyn.mixer.slots.admission import MissingTraitError
from coefdyn.mixer.slots.evolution import Evolution
from coefdyn.mixer.slots.normalization import Normalization
from coefdyn.mixer.slots.preprocess import Preprocess
from coefdyn.mixer.slots.readout import Readout
from coefdyn.mixer.slots.scaling import Scaling
from coefdyn.model.blocks import Block
from coefdyn.model.heads import AutoEncoderHead, NextTokenHead
from coefdyn.model.model import SequenceModel
from coefdyn.model.position import Position
from coefdyn.tasks.task import Task

if TYPE_CHECKING:  # importing it takes seconds, which only training should spend
    from lightning.pytorch.loggers import Logger

DESIGN_SLOTS: dict[str, type] = {
    "evolution": Evolution,
    "scaling": Scaling,
    "readout": Readout,
    "normalization": Normalization,
}
SLOTS = DESIGN_SLOTS | {"preprocess": Preprocess, "block": Block, "position": Position}
NOT_ARGUMENTS = (
    "name",
    "source",
    "seed",
    "test_lengths",
    "test_gaps",
)  # keys of a task that no constructor takes

# By slot, an object that replaces the configuration's; under `mixer`, a factory of mixers.
Objects = Mapping[str, Any]


def build_model(config: Config, objects: Objects | None = None) -> SequenceModel:
    """The model of a composed configuration. The same seed gives the same weights."""
    model = config.settings.model
    head = AutoEncoderHead if build_task(config).auto_encoder else NextTokenHead
    torch.manual_seed(config.settings.seed)
    position = (objects or {}).get("position") or build_slot(config, model.position, Position)
    layers = layers_of(config)
    try:
        return SequenceModel(
            vocab_size=model.vocab_size,
            d_model=model.d_model,
            position=position,
            blocks=[build_block(layer, objects) for _, layer in layers],
            head=head(model.d_model, model.vocab_size),
            init=model.init,
        )
    except ValueError as error:
        raise ConfigError(one_sentence(error)) from error


def build_task(config: Config) -> Task:
    arguments = {k: v for k, v in config.settings.task.items() if k not in NOT_ARGUMENTS}
    task: Task = build_slot(config, arguments, Task)
    return task


def build_optimizer(config: Config, parameters: Iterable[Any]) -> Optimizer:
    """The optimizer of a composed configuration, at its peak learning rate.

    `parameters` may also be groups with their own settings, as in torch.
    """
    for name in ("lr", "weight_decay", "eps"):
        value = config.settings.optimizer.get(name, 0.0)
        if type(value) not in (int, float):
            raise ConfigError(f"optimizer.{name}={value} must be a number")
    make = build_slot(config, config.settings.optimizer, Optimizer)
    if (
        make.func is torch.optim.AdamW
        and make.keywords.get("fused")
        and not (make.args or make.keywords.keys() - adamw.ARGUMENTS)
    ):
        make = partial(adamw.AdamW, **make.keywords)
    try:
        return make(list(parameters))
    except (TypeError, ValueError, IndexError, RuntimeError) as error:
        raise ConfigError(f"optimizer cannot be built: {one_sentence(error)}") from error


def build_logger(config: Config) -> "list[Callable[..., Logger]]":
    """Factories of the loggers used besides metrics.csv: none, or one of Lightning's.

    A factory is called with save_dir, version and name.
    """
    if not config.settings.logger:
        return []
    from lightning.pytorch.loggers import Logger

    make = build_slot(config, config.settings.logger, Logger)
    with tempfile.TemporaryDirectory() as directory:  # only a try shows a missing package
        try:
            make(save_dir=directory, version="check", name="check")
        except Exception as error:  # each logger raises its own errors
            raise ConfigError(
                f"logger={config.choices.get('logger')} cannot be used: {one_sentence(error)}"
            ) from error
    return [make]


def build_block(config: Config, objects: Objects | None = None) -> Block:
    """One block with its own mixer."""
    model = config.settings.model
    sizes = {name: getattr(model, name) for name in ("d_model", "d_value", "n_heads", "d_mlp")}
    if model.block.get("gated") not in (True, False):
        raise ConfigError(f"model.block.gated={model.block.get('gated')} must be true or false")
    mixer = build_mixer(config, objects)
    block: Block = build_slot(config, model.block, Block, mixer=mixer, **sizes)
    return block


def build_mixer(config: Config, objects: Objects | None = None) -> nn.Module:
    """The mixer of the four slots, or the foreign mixer that the configuration names."""
    model, objects = config.settings.model, objects or {}
    if "mixer" in objects:
        return _checked_foreign(_made(objects["mixer"]), config)
    if model.mixer is not None:
        return _checked_foreign(build_slot(config, model.mixer, nn.Module), config)
    try:
        return SequenceMixer(
            d_model=model.d_model,
            n_state=model.n_state,
            d_value=model.d_value,
            n_heads=model.n_heads,
            unit_qk=model.unit_qk,
            backend=model.backend,
            preprocess=objects.get("preprocess")
            or build_slot(config, model.preprocess, Preprocess),
            **{
                name: copy.deepcopy(objects[name])
                if name in objects
                else build_slot(config, getattr(model, name), kind)
                for name, kind in DESIGN_SLOTS.items()
            },
        )
    except MissingTraitError as error:
        raise ConfigError(_remedy(config, error)) from error
    except (TypeError, ValueError) as error:
        raise ConfigError(one_sentence(error)) from error


def build_design_mixer(config: Config) -> SequenceMixer:
    """The mixer of a configuration; ConfigError if it is a foreign one, which has no design."""
    foreign = config.settings.model.mixer
    if foreign is not None:
        raise ConfigError(
            f"model.mixer={foreign.get('_target_')} is no point (A_t, b_j, phi, eta) of the "
            "design space, so its coefficients are unknown; choose a preset of conf/model"
        )
    mixer = build_mixer(config)
    assert isinstance(mixer, SequenceMixer)
    return mixer


def _made(make: Any) -> Any:
    """The mixer that a factory makes. It is called once per layer."""
    if isinstance(make, nn.Module) or not callable(make):
        raise ConfigError(
            f"mixer={type(make).__name__} must be what makes a mixer for each layer, such as "
            "mixer=lambda: MyMixer(64)"
        )
    try:
        return make()
    except TypeError as error:
        raise ConfigError(
            f"mixer is called without arguments, and fails: {one_sentence(error)}; give it its "
            "sizes, as in mixer=lambda: MyMixer(64)"
        ) from error


def _checked_foreign(mixer: Any, config: Config) -> nn.Module:
    """The given foreign mixer, after a check that it maps (b t d) to (b t d)."""
    model, name = config.settings.model, type(mixer).__name__
    if not isinstance(mixer, nn.Module):
        raise ConfigError(f"model.mixer makes a {name}, which is no torch.nn.Module")
    if model.d_value != model.d_model:
        raise ConfigError(
            f"model.mixer={name} maps d_model to d_model: model.d_value={model.d_value} must be "
            f"model.d_model={model.d_model}"
        )
    x = torch.zeros(1, 2, model.d_model)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        try:
            y = mixer(x)
        except Exception as error:  # a user's code may raise anything
            raise ConfigError(f"model.mixer={name} fails: {one_sentence(error)}") from error
    if not isinstance(y, torch.Tensor) or y.shape != x.shape:
        output = tuple(y.shape) if isinstance(y, torch.Tensor) else type(y).__name__
        raise ConfigError(
            f"model.mixer={name} must map (batch, time, d_model) to the same shape; it makes "
            f"{output} of {tuple(x.shape)}"
        )
    return mixer


@cache
def readout(name: str) -> Readout:
    """The readout in conf/model/readout with this name."""
    config = compose([f"model/readout={name}"])
    built: Readout = build_slot(config, config.settings.model.readout, Readout)
    return built


def build_slot(config: Config, slot: Slot, kind: type, **arguments: Any) -> Any:
    """The object that a section describes: of the class `_target_`, which must be a `kind`.

    With `_partial_` it is a factory of such objects. `arguments` add to those of the section.
    """
    check_targets(slot, kind, config.settings.plugins)
    try:
        return instantiate(dict(slot), _convert_="all", **arguments)
    except HydraException as error:
        cause = error.__cause__
        if isinstance(cause, ValueError):  # the constructor's own message
            raise ConfigError(str(cause)) from error
        target = slot["_target_"]
        raise ConfigError(f"{target} cannot be built: {one_sentence(cause or error)}") from error


def _remedy(config: Config, error: MissingTraitError) -> str:
    """An error message that lists the evolutions of conf/ with the trait that the mixer lacks."""
    choices, plugins = config.choices, config.settings.plugins
    with_plugins = [f"plugins=[{','.join(plugins)}]"] if plugins else []
    fitting = []
    for option in options("model/evolution", tuple(plugins)):
        evolution = compose([f"model/evolution={option}", *with_plugins]).settings.model.evolution
        if getattr(build_slot(config, evolution, Evolution), error.trait):
            fitting.append(option)
    return (
        f"model/scaling={choices['model/scaling']}: {error.need}, but "
        f"model/evolution={choices['model/evolution']} has none; "
        f"choose model/evolution from {', '.join(fitting)}, or another scaling"
    )
