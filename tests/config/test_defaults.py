"""A constructor's defaults are those of conf/: who builds by hand gets the same model."""

import importlib
import inspect
from collections import defaultdict
from typing import Any

import pytest
import yaml

from coefdyn.config.plugins import CONF

GROUPS = ("model/evolution", "model/scaling", "model/readout", "model/normalization",
          "model/block", "model/preprocess", "model/position", "task")  # fmt: skip


def class_of(target: str) -> Any:
    module, _, name = target.rpartition(".")
    return getattr(importlib.import_module(module), name)


def written() -> dict[tuple[str, str], list[Any]]:
    """By class and argument: the values that files of conf/ write out; not those of files that
    switch on what the class declares neutral."""
    found: dict[tuple[str, str], list[Any]] = defaultdict(list)
    for group in GROUPS:
        for path in (CONF / group).glob("*.yaml"):
            values = yaml.safe_load(path.read_text())
            if "defaults" in values:  # a variant of another file
                continue
            neutral = getattr(class_of(values["_target_"]), "neutral", {})
            if any(values.get(key, value) != value for key, value in neutral.items()):
                continue
            for key, value in values.items():
                plain = not isinstance(value, dict) and "${" not in str(value)
                if plain and key not in ("_target_", "_partial_", "name", "source"):
                    found[values["_target_"], key].append(value)
    return found


@pytest.mark.parametrize(("target", "argument"), sorted(written()))
def test_what_all_files_agree_on_is_the_default(target: str, argument: str) -> None:
    values = written()[target, argument]
    made, name = class_of(target), target.rpartition(".")[2]
    parameters = inspect.signature(made).parameters
    if argument not in parameters:
        pytest.skip("no argument of the constructor")
    default = parameters[argument].default
    plain = list(default) if isinstance(default, tuple) else default
    if all(value == values[0] for value in values) and argument != "vocab_size":
        assert plain == values[0], f"{name}({argument}={values[0]})"
    else:
        assert default is inspect.Parameter.empty, f"{name}: files differ in {argument}"
