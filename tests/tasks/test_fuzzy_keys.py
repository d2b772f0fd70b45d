"""Fuzzy recall tells its keys apart, and noise from keys."""

import itertools

import numpy as np

from coefdyn.tasks.mad.fuzzy_recall import Motifs
from coefdyn.tasks.task import IGNORE
from tests.tasks.makers import fuzzy


def test_a_code_is_one_tuple() -> None:
    n_tokens, widest = 4, 3
    tuples = [t for size in range(1, widest + 1) for t in itertools.permutations(range(4), size)]
    tokens = np.zeros((1, len(tuples), widest), dtype=np.int64)
    for place, motif in enumerate(tuples):
        tokens[0, place, : len(motif)] = motif
        tokens[0, place, len(motif) :] = place % n_tokens  # beyond its size anything may stand
    size = np.array([[len(motif) for motif in tuples]])
    assert len(set(Motifs(tokens, size).codes(n_tokens)[0].tolist())) == len(tuples)


def test_what_is_asked_for_was_shown_before_however_much_noise_there_is() -> None:
    """Keys and values of one token: pairs can be read off."""
    task = fuzzy(k_motif_size=1, v_motif_size=1, frac_noise=0.6, noise_vocab_size=4)
    inputs, targets = task.generate("test", 0)
    asked = 0
    for tokens, wanted in zip(inputs.tolist(), targets.tolist(), strict=True):
        for place, value in enumerate(wanted):
            if value == IGNORE:
                continue
            asked += 1
            shown = [tokens[at + 1] for at in range(place) if tokens[at] == tokens[place]]
            assert shown, "a key whose value nobody could know"
            assert set(shown) == {value}
    assert asked > len(inputs)
