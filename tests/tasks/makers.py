"""Small tasks of every kind, for tests."""

from collections.abc import Callable
from typing import Any

from coefdyn.tasks.mad.compression import Compression
from coefdyn.tasks.mad.fuzzy_recall import FuzzyRecall
from coefdyn.tasks.mad.in_context_recall import InContextRecall
from coefdyn.tasks.mad.memorization import Memorization
from coefdyn.tasks.mad.selective_copying import SelectiveCopying
from coefdyn.tasks.recall.copy import Copy
from coefdyn.tasks.recall.mqar import Mqar
from coefdyn.tasks.state_tracking.flip_flop import FlipFlop
from coefdyn.tasks.state_tracking.group_word import GroupWord
from coefdyn.tasks.state_tracking.modular_arithmetic import ModularArithmetic
from coefdyn.tasks.state_tracking.parity import Parity
from coefdyn.tasks.task import Task

N = 3000


def copying(**changes: int) -> SelectiveCopying:
    settings = {"vocab_size": 16, "seq_len": 40, "num_tokens_to_copy": 6}
    return SelectiveCopying(**settings | changes, num_train=N, num_test=N)


def memorization(**changes: float) -> Memorization:
    settings = {
        "vocab_size": 64,
        "seq_len": 16,
        "frac_noise": 0.0,
        "noise_vocab_size": 0,
        "map_seed": 12345,
    }
    return Memorization(**settings | changes, num_train=N, num_test=N)


def recall(**changes: float) -> InContextRecall:
    settings = {
        "vocab_size": 24,
        "seq_len": 32,
        "multi_query": True,
        "frac_noise": 0.2,
        "noise_vocab_size": 8,
    }
    return InContextRecall(**settings | changes, num_train=N, num_test=N)


def fuzzy(**changes: float) -> FuzzyRecall:
    settings = {
        "vocab_size": 16,
        "seq_len": 64,
        "k_motif_size": 3,
        "v_motif_size": 3,
        "multi_query": True,
        "frac_noise": 0.0,
        "noise_vocab_size": 0,
    }
    return FuzzyRecall(**settings | changes, num_train=N, num_test=N)


def compression(**changes: int) -> Compression:
    return Compression(**{"vocab_size": 16, "seq_len": 12} | changes, num_train=N, num_test=N)


def parity(**changes: int) -> Parity:
    return Parity(**{"vocab_size": 2, "seq_len": 40} | changes, num_train=N, num_test=N)


def arithmetic(**changes: Any) -> ModularArithmetic:
    settings = {"vocab_size": 12, "seq_len": 24, "modulus": 5, "brackets": False}
    return ModularArithmetic(**settings | changes, num_train=N, num_test=N)


def nested(**changes: Any) -> ModularArithmetic:
    return arithmetic(**{"seq_len": 35, "brackets": True} | changes)


def group_word(**changes: Any) -> GroupWord:
    settings = {"vocab_size": 120, "seq_len": 40, "group": "A4", "tokens": "generators"}
    return GroupWord(**settings | changes, num_train=N, num_test=N)


def flip_flop(**changes: float) -> FlipFlop:
    settings = {"vocab_size": 5, "seq_len": 40, "p_ignore": 0.6}
    return FlipFlop(**settings | changes, num_train=N, num_test=N)


def mqar(**changes: Any) -> Mqar:
    settings = {"vocab_size": 32, "seq_len": 40, "num_kv_pairs": 4, "power_a": 0.2}
    return Mqar(**settings | changes, num_train=N, num_test=N)


def copy(**changes: int) -> Copy:
    return Copy(**{"vocab_size": 12, "seq_len": 24} | changes, num_train=N, num_test=N)


# The tasks of MAD.
MAKERS: dict[str, Callable[..., Task]] = {
    "copying": copying,
    "memorization": memorization,
    "recall": recall,
    "fuzzy": fuzzy,
    "compression": compression,
}
# State tracking and recall.
OTHERS: dict[str, Callable[..., Task]] = {
    "parity": parity,
    "arithmetic": arithmetic,
    "nested": nested,
    "group_word": group_word,
    "flip_flop": flip_flop,
    "mqar": mqar,
    "copy": copy,
}
