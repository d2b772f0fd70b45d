"""run_id: a hash of every value that moves a run's numbers, and of no other.

Classes count by their name, not by where they lie: ours as `Relu`, others as `torch:AdamW`. An
argument at its declared neutral value does not count, so that a later version can add arguments
without another name for every run there is: a class declares them in `neutral`, for sections they
stand below. A neutral value never changes once it is released.
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

# Where and how a run is carried out, or where its values came from: not what it computes.
NOT_HASHED = {
    "": {"plugins", "paths", "logger", "scale", "grid", "force", "check", "population"},
    # Those from max_length on count as arguments of the slots that use them.
    "model": {"backend", "max_length", "factor", "base", "max_strength"},
    "task": {"name"},
    "trainer": {"devices", "checkpoint_seconds"},
}
OF_A_DESIGN = {"evolution", "scaling", "readout", "normalization", "preprocess", "unit_qk"}
NEUTRAL: dict[str, dict[str, Any]] = {
    "": {},
    "model": {"mixer": None},
    "trainer": {"schedule": "cosine"},
}


def run_id(values: Mapping[str, Any]) -> str:
    """The name of a run with these settings: the same everywhere."""
    roots = (OURS, *LIBRARIES, *(n for n in values.get("plugins", ()) if n.isidentifier()))
    kept = _without(values, NOT_HASHED[""], NEUTRAL[""])
    for name, section in kept.items():
        if isinstance(section, Mapping):
            foreign = name == "model" and section.get("mixer") is not None
            left_out = NOT_HASHED.get(name, set()) | (OF_A_DESIGN if foreign else set())
            kept[name] = _without(section, left_out, NEUTRAL.get(name, {}))
    kept["task"] = _files_by_content(kept["task"])
    text = json.dumps(_canonical(kept, roots), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _without(
    values: Mapping[str, Any], left_out: AbstractSet[str], neutral: Mapping[str, Any]
) -> dict[str, Any]:
    """What is neither left out nor neutral, where 0 and 0.0 are one value, 1 and true are not."""
    return {
        name: value
        for name, value in values.items()
        if name not in left_out and not (name in neutral and _text(value) == _text(neutral[name]))
    }


def _text(value: Any) -> str:
    return json.dumps(_canonical(value, ()), sort_keys=True, default=str)


def _files_by_content(task: Mapping[str, Any]) -> dict[str, Any]:
    """Files are what they hold, wherever they are."""
    kept = {**task, "source": identity(str(task.get("source")))}
    if "data" in task:
        kept["data"] = text_identity(Path(str(task["data"])))
    return kept


def _canonical(value: Any, roots: tuple[str, ...]) -> Any:
    """Whole floats as integers, so that 0 and 0.0 are one value; classes by their name."""
    if isinstance(value, Mapping):
        target = str(value.get("_target_", ""))
        neutral = getattr(trusted_class(target, roots), "neutral", {}) if target and roots else {}
        kept = {
            str(key): _canonical(inner, roots)
            for key, inner in _without(value, {"_partial_", "_target_"}, neutral).items()
        }
        root, name = target.partition(".")[0], target.rpartition(".")[2]
        return kept | ({"_target_": name if root == OURS else f"{root}:{name}"} if target else {})
    if isinstance(value, list | tuple):
        return [_canonical(inner, roots) for inner in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value
