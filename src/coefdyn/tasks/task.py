"""The base class of tasks: settings, and the examples of each split drawn from them."""

import inspect
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Int64
from numpy import ndarray

IGNORE = -100  # a target that is not scored
Split = Literal["train", "test", "validation"]
# Random streams of the splits. 2 is not free: the order of batches draws from (seed, 2, epoch), and
# numpy takes (seed, 2) for (seed, 2, 0).
STREAMS = {"train": 0, "test": 1, "validation": 3}


class Examples(NamedTuple):
    """Token sequences, and the token to predict at each of their steps."""

    inputs: Int64[ndarray, "b t"]
    targets: Int64[ndarray, "b t"]


class Task:
    """A task's settings. `generate` has a random stream of its own for each (split, seed).

    Traits:
    `auto_encoder`: the whole sequence must be restored from its last step;
    `language`: the data are text from files, and models are compared by perplexity;
    `original`: the name of the function of MAD's own generator that takes the same settings.
    """

    auto_encoder = False
    language = False
    original: str | None = None

    def __init__(self, vocab_size: int, seq_len: int, num_train: int, num_test: int) -> None:
        for name, value in (
            ("vocab_size", vocab_size),
            ("seq_len", seq_len),
            ("num_train", num_train),
            ("num_test", num_test),
        ):
            if type(value) is not int or value < 1:
                raise ValueError(f"task.{name}={value} must be a whole number of at least 1")
        self.vocab_size, self.seq_len = vocab_size, seq_len
        self.num_train, self.num_test = num_train, num_test

    def settings(self) -> dict[str, Any]:
        """The arguments of the constructor, each of which a task keeps under its own name."""
        names = inspect.signature(type(self)).parameters
        lost = [name for name in names if not hasattr(self, name)]
        if lost:
            raise ValueError(
                f"{type(self).__name__} cannot be built again at another length: it keeps no "
                f"{', '.join(lost)}; keep each argument under its own name, or override at_length"
            )
        return {name: getattr(self, name) for name in names}

    def at_length(self, seq_len: int) -> "Task":
        """The same task with longer or shorter sequences.

        All other settings stay. A task in which one of them must follow the length overrides this.
        """
        return type(self)(**self.settings() | {"seq_len": seq_len})

    @property
    def length(self) -> int:
        """Steps of an input sequence."""
        return self.seq_len

    @property
    def chance(self) -> float:
        """Expected accuracy on the test split when guessing evenly among possible answers."""
        raise NotImplementedError

    def ceiling(self, train: Examples, test: Examples) -> float:
        """The best accuracy on `test` that can be learned from `train`."""
        return 1.0

    def gaps(self, examples: Examples) -> Int64[ndarray, "b t"] | None:
        """How many steps before each scored target the key that it asks for was last shown.

        None of a task in which there is no such key. Other places hold any number.
        """
        return None

    def generate(self, split: Split, seed: int) -> Examples:
        return self.draw(self.count(split), split, np.random.default_rng([seed, STREAMS[split]]))

    def count(self, split: Split) -> int:
        """Number of sequences of a split; validation has as many as test."""
        return self.num_train if split == "train" else self.num_test

    def draw(self, count: int, split: Split, rng: np.random.Generator) -> Examples:
        raise NotImplementedError


def check_vocabulary(vocab_size: int, needed: int, what: str) -> None:
    if vocab_size < needed:
        raise ValueError(
            f"task.vocab_size={vocab_size} is too small for {what}; raise it to {needed} or more"
        )


def check_noise(frac_noise: float, noise_vocab_size: int) -> None:
    if not 0 <= frac_noise < 1:
        raise ValueError(f"task.frac_noise={frac_noise} must lie in [0, 1)")
    if noise_vocab_size < 0:
        raise ValueError(f"task.noise_vocab_size={noise_vocab_size} must be at least 0")
    if frac_noise > 0 and noise_vocab_size == 0:
        raise ValueError(
            f"task.frac_noise={frac_noise} needs noise tokens; raise task.noise_vocab_size"
        )


def check_multi_query(multi_query: bool) -> None:
    if multi_query not in (True, False):
        raise ValueError(f"task.multi_query={multi_query} must be true or false")


def halves(vocab_size: int, special: int, noise_vocab_size: int, least: int) -> tuple[int, int]:
    """Split the ids that special and noise tokens leave into keys and values.

    Returns n_keys and n_values: ids below n_keys are keys, the next n_values ids are values.
    """
    usable = vocab_size - special - noise_vocab_size
    n_keys = usable // 2
    if n_keys < least:
        raise ValueError(
            f"task.vocab_size={vocab_size} is too small: {special} special and {noise_vocab_size} "
            f"noise tokens leave {max(n_keys, 0)} keys, and at least {least} are needed; "
            f"raise it to {special + noise_vocab_size + 2 * least} or more"
        )
    return n_keys, usable - n_keys


def shifted(tokens: Int64[ndarray, "b t"], scored: Int64[ndarray, "b t"], split: Split) -> Examples:
    """Next-token prediction. Training scores every token, the other splits only `scored`."""
    return Examples(tokens[:, :-1], (tokens if split == "train" else scored)[:, 1:])
