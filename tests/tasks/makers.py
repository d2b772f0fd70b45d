"""Small tasks of every kind, for tests."""

from collections.abc import Callable

from coefdyn.tasks.mad.compression import Compression
from coefdyn.tasks.mad.fuzzy_recall import FuzzyRecall
from coefdyn.tasks.mad.in_context_recall import InContextRecall
from coefdyn.tasks.mad.memorization import Memorization
from coefdyn.tasks.mad.selective_copying import SelectiveCopying
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


MAKERS: dict[str, Callable[..., Task]] = {
    "copying": copying,
    "memorization": memorization,
    "recall": recall,
    "fuzzy": fuzzy,
    "compression": compression,
}
