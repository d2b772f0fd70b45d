"""Where examples come from: our generator, files in the published layout, or the original code."""

import hashlib
import importlib
import inspect
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int64
from numpy import ndarray

from coefdyn.errors import ConfigError
from coefdyn.tasks.task import IGNORE, STREAMS, Examples, Split, Task

NATIVE, MAD_LAB = "native", "mad_lab"


def load(task: Task, split: Split, seed: Any, source: Any) -> Examples:
    """The examples of a split; `source` is native, mad_lab or a directory of npy files."""
    if type(seed) is not int or seed < 0:
        raise ConfigError(f"task.seed={seed} must be a whole number of at least 0")
    if source == NATIVE:
        examples = task.generate(split, seed)
    elif source == MAD_LAB:
        examples = _from_original(task, split, seed)
    elif Path(str(source)).is_dir():
        examples = _from_files(Path(source) / split)
    else:
        raise ConfigError(
            f"task.source={source} is no directory; choose {NATIVE}, {MAD_LAB}, or a directory "
            "with train/inputs.npy, train/targets.npy, test/inputs.npy and test/targets.npy"
        )
    _check(examples, task, split, source)
    return examples


def identity(source: str) -> str:
    """The source as part of a run's name: itself, or for files a hash of their content."""
    if source in (NATIVE, MAD_LAB) or not Path(source).is_dir():
        return source
    digest = hashlib.sha256()
    # train, test and perhaps validation; inputs and targets
    for path in sorted(Path(source).glob("[tv]*/*s.npy")):
        digest.update(path.relative_to(source).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()


def _from_original(task: Task, split: Split, seed: int) -> Examples:
    """Call the original's instance function once per sequence, as the original itself does."""
    if task.original is None:
        raise ConfigError(
            f"task.source={MAD_LAB} has no {type(task).__name__}, which is no task of that "
            f"benchmark; use task.source={NATIVE}"
        )
    try:
        make = getattr(importlib.import_module("mad.data.instances"), task.original)
    except ModuleNotFoundError as error:
        if not str(error.name).startswith("mad"):  # mad is there, but something it imports is not
            raise ConfigError(f"task.source=mad_lab cannot be imported: {error}") from error
        raise ConfigError(
            "task.source=mad_lab needs the original benchmark: put its checkout, "
            "github.com/athms/mad-lab, on PYTHONPATH"
        ) from error
    rng = np.random.default_rng([seed, STREAMS[split]])
    np.random.seed(rng.integers(2**32))
    count = task.count(split)
    parameters = inspect.signature(make).parameters
    settings = {name: value for name, value in vars(task).items() if name in parameters}
    if "is_training" in parameters:
        settings["is_training"] = split == "train"
    settings["rng"] = rng
    pairs = [make(**settings) for _ in range(count)]
    inputs, targets = (np.stack(side).astype(np.int64) for side in zip(*pairs, strict=True))
    return Examples(inputs, targets)


def _from_files(directory: Path) -> Examples:
    return Examples(_array(directory / "inputs.npy"), _array(directory / "targets.npy"))


def _array(path: Path) -> Int64[ndarray, "b t"]:
    try:
        array = np.load(path, allow_pickle=False)
    except FileNotFoundError as error:
        raise ConfigError(f"{path} is missing; task.source needs it") from error
    except Exception as error:  # np.load guesses the format and raises whatever that parser does
        cause = " ".join(str(error).split())
        raise ConfigError(f"{path} is not a readable npy file of integers: {cause}") from error
    if not isinstance(array, ndarray) or array.ndim != 2 or array.dtype.kind not in "iu":
        raise ConfigError(f"{path} must hold integers of shape (sequences, steps)")
    return array.astype(np.int64)


def _check(examples: Examples, task: Task, split: Split, source: str) -> None:
    """Raise unless the data match the settings, since a run's record holds only the settings."""
    where = f"the {split} data of task.source={source}"
    if not isinstance(examples, Examples) or any(x.dtype != np.int64 for x in examples):
        raise ConfigError(f"{where} must be Examples of int64, inputs and targets")
    inputs, targets = examples
    count, counted = task.count(split), "train" if split == "train" else "test"
    if inputs.shape != targets.shape:
        raise ConfigError(f"{where} has inputs {inputs.shape} but targets {targets.shape}")
    if inputs.shape != (count, task.length):
        raise ConfigError(
            f"{where} has {inputs.shape[0]} sequences of {inputs.shape[1]} steps, but task.num_"
            f"{counted} and task.seq_len ask for {count} of {task.length}; set them to match"
        )
    if (targets == IGNORE).all(1).any():
        raise ConfigError(f"{where} has sequences in which no target is scored")
    valid = (targets >= 0) | (targets == IGNORE)
    if inputs.min() < 0 or max(inputs.max(), targets.max()) >= task.vocab_size or not valid.all():
        raise ConfigError(
            f"{where} has token ids outside 0..{task.vocab_size - 1} (targets may be {IGNORE}); "
            "set task.vocab_size to match"
        )
