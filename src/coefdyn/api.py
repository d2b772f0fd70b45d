"""The Python interface: what `import coefdyn` offers. It needs no knowledge of Hydra."""

import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from torch import nn

from coefdyn.config import build
from coefdyn.config.compose import Config, compose
from coefdyn.config.plugins import options
from coefdyn.errors import ConfigError
from coefdyn.mixer.sequence_mixer import SequenceMixer
from coefdyn.model.model import SequenceModel
from coefdyn.principles.check import Report, check
from coefdyn.results.load import Run, load_run
from coefdyn.runs.archive import already_recorded, folder_of


def build_mixer(
    preset: str = "softmax_attention",
    *,
    d_model: int,
    n_heads: int,
    n_state: int | None = None,
    d_value: int | None = None,
    plugins: Sequence[str] = (),
    **choices: Any,
) -> SequenceMixer:
    """A sequence mixer that maps (batch, time, d_model) to (batch, time, d_value).

    Args:
        preset: An architecture of conf/model, such as "gla" or "mamba2".
        d_model: Width of the input.
        n_heads: Number of heads.
        n_state: Width of the queries of all heads together; the default is d_model.
        d_value: Width of the values of all heads together; the default is d_model.
        plugins: Your own packages, whose choices and classes may be used.
        choices: evolution, scaling, readout, normalization and preprocess: a name, such as
            readout="relu", or your own object. Any other key of the model section, such as
            unit_qk=True, factor=0.9, backend="linear".
    """
    sizes: dict[str, int | None] = {
        "d_model": d_model,
        "n_heads": n_heads,
        "n_layers": 1,
        "d_mlp": None,
    }
    sizes |= {"n_state": n_state or d_model, "d_value": d_value or d_model}
    sizes |= {"vocab_size": 2, "max_length": 1}  # a mixer has neither
    config, objects = _chosen(preset, sizes, choices, plugins)
    mixer = build.build_mixer(config, objects)
    assert isinstance(mixer, SequenceMixer)
    return mixer


def build_model(
    preset: str = "softmax_attention",
    *,
    vocab_size: int,
    max_length: int,
    d_model: int,
    n_heads: int,
    n_layers: int = 2,
    n_state: int | None = None,
    d_value: int | None = None,
    d_mlp: int | None = -1,
    mixer: Callable[[], nn.Module] | None = None,
    pattern: Sequence[str] | None = None,
    seed: int = 0,
    plugins: Sequence[str] = (),
    **choices: Any,
) -> SequenceModel:
    """A model that maps tokens (batch, time) to logits (batch, time, vocab_size).

    Args:
        preset: An architecture of conf/model, such as "gla" or "mamba2".
        vocab_size: Number of tokens.
        max_length: The longest sequence that learned positions can take.
        d_model: Width of the blocks.
        n_heads: Number of heads.
        n_layers: Number of blocks.
        n_state: As for build_mixer.
        d_value: As for build_mixer.
        d_mlp: Inner width of the MLP; the default is 2 * d_model, and None means no MLP.
        mixer: A factory of your own sequence mixer, called once per layer, as in
            mixer=lambda: MyMixer(64). It replaces the four slots, and maps
            (batch, time, d_model) to the same shape.
        pattern: For a hybrid, presets that take turns over the layers, such as
            ["mamba2", "mamba2", "rope"], in place of `preset`.
        seed: Seed of the initial weights.
        plugins: As for build_mixer.
        choices: As for build_mixer, and block and position; objects are copied for each layer.
    """
    sizes: dict[str, int | None] = {
        "vocab_size": vocab_size,
        "max_length": max_length,
        "d_model": d_model,
    }
    sizes |= {"n_state": n_state or d_model, "d_value": d_value or d_model}
    sizes |= {"n_heads": n_heads, "n_layers": n_layers}
    sizes |= {"d_mlp": 2 * d_model if d_mlp == -1 else d_mlp}
    if pattern is not None:
        choices = choices | {"pattern": f"[{','.join(pattern)}]"}
    config, objects = _chosen(preset, sizes, choices, plugins, seed)
    return build.build_model(config, objects | ({"mixer": mixer} if mixer else {}))


def _chosen(
    preset: str,
    sizes: dict[str, int | None],
    choices: dict[str, Any],
    plugins: Sequence[str],
    seed: int = 0,
) -> tuple[Config, dict[str, Any]]:
    """The configuration of all names and numbers, and the objects by slot."""
    overrides, objects = [f"model={preset}", f"seed={seed}"], {}
    for name, value in choices.items():
        if name in build.SLOTS and isinstance(value, str):
            overrides.append(f"model/{name}={value}")
        elif name in build.SLOTS:
            objects[name] = _checked(name, value)
        else:
            overrides.append(f"model.{name}={value}")
    overrides += [f"model.{k}={'null' if v is None else v}" for k, v in sizes.items()]
    return compose([*overrides, *_named(plugins)]), objects


def _checked(name: str, value: Any) -> Any:
    """The user's object for a slot, if it is of the slot's class."""
    kind = build.SLOTS[name]
    if name == "preprocess" and callable(value):  # a factory: the mixer knows the channels
        return value
    if name == "block" or not isinstance(value, kind):
        known = ", ".join(options(f"model/{name}"))
        instead = "" if name == "block" else f", or a coefdyn {kind.__name__}"
        raise ConfigError(f"{name}={value!r} must be one of {known}{instead}")
    return value


def train(*overrides: str, results: str | Path = "results", plugins: Sequence[str] = ()) -> Run:
    """Train one run and return it; a run that is already recorded is only read.

    Overrides are those of the command line, such as "model=gla", "task=noisy_recall",
    "scale=smoke", "optimizer.lr=1e-3".
    """
    if not isinstance(results, str | Path) or not str(results):
        raise ConfigError(f"results={results!r} must be a folder")
    _check_texts(overrides)
    config = compose([*overrides, f"paths.results={results}", *_named(plugins)])
    if already_recorded(config) is None:
        from coefdyn.runs.run import run_one  # takes seconds

        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module=r"lightning\.")  # about Lightning's internals
            run_one(config)
    return load_run(folder_of(config), plugins)


def check_design(*overrides: str, plugins: Sequence[str] = ()) -> Report:
    """Test a design against the six principles: `.lines` with verdicts, `.facts`, `.broken`."""
    _check_texts(overrides)
    config = compose([*overrides, *_named(plugins)])
    build.build_model(config)  # reports a design that cannot be built
    return check(config)


def _check_texts(overrides: Sequence[str]) -> None:
    for override in overrides:
        if not isinstance(override, str):
            raise ConfigError(f"{override!r} must be text, as on the command line: 'model=gla'")


def _named(plugins: Sequence[str]) -> list[str]:
    if isinstance(plugins, str) or not all(isinstance(name, str) for name in plugins):
        raise ConfigError(f"plugins={plugins!r} must be a list, such as ['my_package']")
    return [f"plugins=[{','.join(plugins)}]"] if plugins else []
