"""Hybrids: `model.pattern` names presets, which take turns over the layers, each with its slots."""

import copy
from dataclasses import replace

from coefdyn.config.compose import Config, draft
from coefdyn.config.plugins import options
from coefdyn.errors import ConfigError


def layers_of(config: Config) -> list[tuple[str, Config]]:
    """For each layer, the name of its preset and a configuration with its slots alone."""
    model = config.settings.model
    if not model.pattern:
        return [(config.choices.get("model", ""), config)] * model.n_layers
    if model.mixer is not None:
        raise ConfigError("model.pattern and model.mixer exclude each other; set one to null")
    length = len(model.pattern)
    if model.n_layers % length:
        above = (model.n_layers // length + 1) * length
        raise ConfigError(
            f"model.pattern has {length} entries, and model.n_layers={model.n_layers} is not a "
            f"multiple of that; set model.n_layers={above}"
        )
    designs = {name: _layer(config, name) for name in dict.fromkeys(model.pattern)}
    return [(name, designs[name]) for name in model.pattern] * (model.n_layers // length)


def designs_of(config: Config) -> dict[str, Config]:
    """Each design of a configuration once, by the name of its preset."""
    return dict(layers_of(config))


def _layer(config: Config, name: str) -> Config:
    values = copy.deepcopy(config.values)
    slots = values["model"].pop("layers")[name]
    values["model"] |= slots | {"pattern": None}
    plugins = tuple(values.get("plugins", ()))
    choices = dict(config.choices)
    if name in options("model", plugins):  # a record may outlive the file of its preset
        with_plugins = [f"plugins=[{','.join(plugins)}]"] if plugins else []
        of_preset = draft([f"model={name}", *with_plugins]).choices
        slots_of_layer = {f"model/{slot}" for slot in slots} | {"model"}
        choices |= {group: of_preset[group] for group in slots_of_layer & of_preset.keys()}
    return replace(config, values=values, choices=choices)
