"""run_id: a hash of every value that changes a run's numbers, and of no other value.

A class counts by its name, not by its module: ours as `Relu`, others as `torch:AdamW`. An argument
at its declared neutral value does not count. So a later version can add an argument and every
existing run keeps its run_id. A class declares neutral values in `neutral`; `NEUTRAL` has those of
sections. A neutral value never changes once it is released.
"""

import hashlib
import json
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Any

from coefdyn.config.plugins import LIBRARIES, OURS, trusted_class
from coefdyn.tasks.source import identity
from coefdyn.tasks.text.corpus import text_identity

# Keys that say where and how a run is carried out, or where its values came from.
NOT_HASHED = {
    "": {"plugins", "paths", "logger", "scale", "grid", "force", "check", "population"},
    # All but backend count as arguments of the slots that use them.
    "model": {"backend", "max_length", "factor", "base", "max_strength"},
    "task": {"name"},
    "trainer": {"devices", "checkpoint_seconds"},
}
OF_A_DESIGN = {"evolution", "scaling", "readout", "normalization", "preprocess", "unit_qk"}
OF_A_LAYER = OF_A_DESIGN | {"block", "max_strength"}  # what an entry of model.pattern decides
NEUTRAL: dict[str, dict[str, Any]] = {
    "": {},
    "model": {"mixer": None, "pattern": None, "layers": None},
    "task": {"test_lengths": None, "test_gaps": False},
    "trainer": {"schedule": "cosine"},
}


def run_id(values: Mapping[str, Any]) -> str:
    """The name of a run with these values: 16 hexadecimal digits, the same on every machine."""
    roots = (OURS, *LIBRARIES, *(n for n in values.get("plugins", ()) if n.isidentifier()))
    hashed = _without(values, NOT_HASHED[""], NEUTRAL[""])
    for name, section in hashed.items():
        if isinstance(section, Mapping):
            excluded, counted = NOT_HASHED.get(name, set()), dict(section)
            if name == "model" and section.get("mixer") is not None:
                excluded = excluded | OF_A_DESIGN
            elif name == "model" and section.get("pattern"):
                excluded = excluded | OF_A_LAYER | {"layers"}
                layers = section.get("layers") or {}
                counted["pattern"] = [_design(layers.get(n, {})) for n in section["pattern"]]
            hashed[name] = _without(counted, excluded, NEUTRAL.get(name, {}))
    hashed["task"] = _files_by_content(hashed["task"])
    text = json.dumps(_canonical(hashed, roots), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _design(layer: Mapping[str, Any]) -> dict[str, Any]:
    """What counts of a layer's slots; the name of its preset does not."""
    return _without(layer, NOT_HASHED["model"], {})


def _without(
    values: Mapping[str, Any], excluded: AbstractSet[str], neutral: Mapping[str, Any]
) -> dict[str, Any]:
    """The values that are neither excluded nor neutral. 0 equals 0.0; 1 does not equal true."""
    return {
        name: value
        for name, value in values.items()
        if name not in excluded and not (name in neutral and _text(value) == _text(neutral[name]))
    }


def _text(value: Any) -> str:
    return json.dumps(_canonical(value, ()), sort_keys=True, default=str)


def _files_by_content(task: Mapping[str, Any]) -> dict[str, Any]:
    """The task with a digest of its files instead of their path."""
    hashed = {**task, "source": identity(str(task.get("source")))}
    if "data" in task:
        hashed["data"] = text_identity(Path(str(task["data"])))
    return hashed


def _canonical(value: Any, roots: tuple[str, ...]) -> Any:
    """The value with whole floats as integers, so that 0 equals 0.0, and classes by their name."""
    if isinstance(value, Mapping):
        target = str(value.get("_target_", ""))
        neutral = getattr(trusted_class(target, roots), "neutral", {}) if target and roots else {}
        arguments = {
            str(key): _canonical(inner, roots)
            for key, inner in _without(value, {"_partial_", "_target_"}, neutral).items()
        }
        root, name = target.partition(".")[0], target.rpartition(".")[2]
        kind = {"_target_": name if root == OURS else f"{root}:{name}"} if target else {}
        return arguments | kind
    if isinstance(value, list | tuple):
        return [_canonical(inner, roots) for inner in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value
