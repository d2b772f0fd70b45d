"""The tasks as plain loops, written from the facts about the original generator: slow, obvious."""

import numpy as np

IGNORE = -100
Example = tuple[list[int], list[int]]


def selective_copying(rng: np.random.Generator, vocab: int, length: int, copies: int) -> Example:
    content = [int(rng.integers(vocab - 2)) for _ in range(copies)]
    blanks_before = [0] * copies
    for _ in range(length - 2 * copies - 1):
        blanks_before[rng.integers(copies)] += 1
    inputs: list[int] = []
    for token, blanks in zip(content, blanks_before, strict=True):
        inputs += [vocab - 2] * blanks + [token]
    targets = [IGNORE] * (len(inputs) + 1) + content
    return inputs + [vocab - 1] + [vocab - 2] * copies, targets


def recall(
    rng: np.random.Generator, vocab: int, length: int, frac_noise: float, n_noise: int, train: bool
) -> Example:
    """Multi-query in-context recall."""
    n_keys = (vocab - n_noise) // 2
    slots = length // 2 - 1
    never_noise = rng.integers(slots)
    value_of: dict[int, int] = {}
    tokens: list[int] = []
    scored: list[int] = []
    for slot in range(slots):
        if slot != never_noise and rng.random() < frac_noise:
            tokens += [int(t) for t in rng.integers(vocab - n_noise, vocab, size=2)]
            scored += [IGNORE, IGNORE]
            continue
        key = int(rng.integers(n_keys))
        scored += [IGNORE, value_of.get(key, IGNORE)]
        value_of.setdefault(key, int(rng.integers(n_keys, vocab - n_noise)))
        tokens += [key, value_of[key]]
    key = int(rng.choice(list(value_of)))
    tokens += [key, value_of[key]]
    scored += [IGNORE, value_of[key]]
    return tokens[:-1], (tokens if train else scored)[1:]


def fuzzy_recall(
    rng: np.random.Generator, vocab: int, length: int, motif: int, train: bool
) -> Example:
    """Multi-query fuzzy recall without noise, keys and values of up to `motif` tokens."""
    n_keys = (vocab - 1) // 2

    def draw_key() -> tuple[int, ...]:
        size = rng.integers(1, motif + 1) if train else motif
        return tuple(int(t) for t in rng.permutation(n_keys)[:size])

    def draw_value() -> tuple[int, ...]:
        size = rng.integers(1, motif + 1)
        return tuple(int(t) for t in n_keys + rng.permutation(vocab - 1 - n_keys)[:size])

    key, value = draw_key(), draw_value()
    end = length - len(key) - len(value) - 2 * motif
    planted_from = rng.integers(end - 2 * motif + 1)
    value_of: dict[tuple[int, ...], tuple[int, ...]] = {}
    tokens: list[int] = []
    scored: list[int] = []
    while len(tokens) < end:
        if len(tokens) >= planted_from and key not in value_of:
            next_key, next_value = key, value
        else:
            next_key, next_value = draw_key(), draw_value()
            if next_key == key:
                next_value = value
        seen = next_key in value_of
        next_value = value_of.setdefault(next_key, next_value)
        tokens += [*next_key, *next_value]
        scored += [IGNORE] * len(next_key)
        scored += list(next_value) if seen else [IGNORE] * len(next_value)
    tokens += [*key, *value]
    scored += [IGNORE] * len(key) + list(value)
    pad = length + 1 - len(tokens)
    tokens, scored = [vocab - 1] * pad + tokens, [IGNORE] * pad + scored
    return tokens[:-1], (tokens if train else scored)[1:]


def memorization(
    rng: np.random.Generator, vocab: int, length: int, value_of: np.ndarray
) -> Example:
    inputs: list[int] = []
    targets: list[int] = []
    for _ in range(length // 2):
        key = int(rng.integers((vocab - 1) // 2))
        inputs += [key, vocab - 1]
        targets += [IGNORE, int(value_of[key])]
    return inputs, targets


def compression(rng: np.random.Generator, vocab: int, length: int) -> Example:
    tokens = [int(t) for t in rng.integers(vocab - 1, size=length - 1)] + [vocab - 1]
    return tokens, tokens
