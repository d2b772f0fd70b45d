"""run_id: a hash of every value that moves a run's numbers, and of no other.

Classes count by their name, not by where they lie: ours as `Relu`, others as `torch:AdamW`. An
argument at its declared neutral value does not count, so that a later version can add arguments
without another name for every run there is: a class declares them in `neutral`, for sections they
stand below. A neutral value never changes once it is released.
"""

import hashlib
import json
from collections.abc import Mapping
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
NEUTRAL: dict[str, dict[str, Any]] = {"": {}, "model": {"mixer": None}, "trainer": {}}


def run_id(values: Mapping[str, Any]) -> str:
    """The name of a run with these settings: the same everywhere."""
    roots = (OURS, *LIBRARIES, *(n for n in values.get("plugins", ()) if n.isidentifier()))
    kept = {}
    for name, value in values.items():
        if name in NOT_HASHED[""] or _is_neutral(NEUTRAL[""], name, value):
            continue
        if isinstance(value, Mapping):
            left_out = NOT_HASHED.get(name, set())
            if name == "model" and value.get("mixer") is not None:
                left_out = left_out | OF_A_DESIGN
            neutral = NEUTRAL.get(name, {})
            value = {
                key: inner
                for key, inner in value.items()
                if key not in left_out and not _is_neutral(neutral, key, inner)
            }
        kept[name] = _canonical(_files_by_content(value) if name == "task" else value, roots)
    text = json.dumps(kept, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _is_neutral(neutral: Mapping[str, Any], name: str, value: Any) -> bool:
    return name in neutral and value == neutral[name] and type(value) is type(neutral[name])


def _files_by_content(task: Mapping[str, Any]) -> dict[str, Any]:
    """Files are what they hold, wherever they are."""
    kept = {**task, "source": identity(str(task.get("source")))}
    if "data" in task:
        kept["data"] = text_identity(Path(str(task["data"])))
    return kept


def _canonical(value: Any, roots: tuple[str, ...]) -> Any:
    """Whole floats as integers, so that 0 and 0.0 are one value; classes by their name."""
    if isinstance(value, Mapping):
        kept = {str(k): _canonical(v, roots) for k, v in value.items() if k != "_partial_"}
        if "_target_" in value:
            target = str(value["_target_"])
            root, neutral = (
                target.partition(".")[0],
                getattr(trusted_class(target, roots), "neutral", {}),
            )
            kept = {k: v for k, v in kept.items() if not _is_neutral(neutral, k, value[k])}
            name = target.rpartition(".")[2]
            kept["_target_"] = name if root == OURS else f"{root}:{name}"
        return kept
    if isinstance(value, list | tuple):
        return [_canonical(inner, roots) for inner in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value
