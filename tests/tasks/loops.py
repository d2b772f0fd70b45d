"""Tasks of state tracking and recall as plain loops, written from their docstrings."""

import numpy as np

IGNORE = -100
Example = tuple[list[int], list[int]]


def parity(rng: np.random.Generator, length: int) -> Example:
    inputs = [int(rng.integers(2)) for _ in range(length)]
    return inputs, [sum(inputs[: t + 1]) % 2 for t in range(length)]


def written(expression: str, value: int, modulus: int, length: int) -> Example:
    """An expression as tokens: digits, then + - * = blank ( )."""
    signs = {sign: modulus + number for number, sign in enumerate("+-*=_()")}
    tokens = [signs[sign] if sign in signs else int(sign) for sign in expression + "="]
    blanks = length - len(tokens)
    targets = [IGNORE] * (len(tokens) - 1) + [value % modulus] + [IGNORE] * blanks
    return tokens + [signs["_"]] * blanks, targets


def arithmetic(
    rng: np.random.Generator, modulus: int, length: int, brackets: bool, train: bool
) -> Example:
    most = (length + 2) // 4 if brackets else length // 2
    digits = int(rng.integers(1, most + 1)) if train else most

    def digit() -> str:
        return str(rng.integers(modulus))

    def nested(count: int) -> str:
        if count == 1:
            return digit()
        left = int(rng.integers(1, count))
        return f"({nested(left)}{rng.choice(list('+-*'))}{nested(count - left)})"

    if brackets:
        expression = nested(digits)
    else:
        expression = digit()
        for _ in range(digits - 1):
            expression += rng.choice(list("+-*")) + digit()
    return written(expression, eval(expression), modulus, length)


def group_word(
    rng: np.random.Generator, elements: list[tuple[int, ...]], letters: list[int], length: int
) -> Example:
    """Permutations as tuples: p[i] is where i goes. A sequence moves a point step by step."""
    inputs = [int(rng.choice(letters)) for _ in range(length)]
    targets = []
    for t in range(length):
        where = list(range(len(elements[0])))
        for letter in inputs[: t + 1]:
            where = [elements[letter][point] for point in where]
        targets.append(elements.index(tuple(where)))
    return inputs, targets


def flip_flop(rng: np.random.Generator, length: int, p_ignore: float) -> Example:
    inputs: list[int] = []
    targets: list[int] = []
    memory = -1
    for pair in range(length // 2):
        name = "ignore" if rng.random() < p_ignore else str(rng.choice(["write", "read"]))
        name = {0: "write", length // 2 - 1: "read"}.get(pair, name)
        bit = memory if name == "read" else int(rng.integers(2))
        memory = bit if name == "write" else memory
        inputs += [{"write": 2, "read": 3, "ignore": 4}[name], bit]
        targets += [bit if name == "read" else IGNORE, IGNORE]
    return inputs, targets


def mqar(
    rng: np.random.Generator, vocab: int, length: int, pairs: int, power_a: float, random: bool
) -> Example:
    keys = rng.permutation(np.arange(1, vocab // 2))[:pairs].tolist()
    values = rng.permutation(np.arange(vocab // 2, vocab))[:pairs].tolist()
    inputs = [int(rng.integers(vocab)) if random else 0 for _ in range(length)]
    targets = [IGNORE] * length
    free = list(range((length - 2 * pairs) // 2))
    for i, (key, value) in enumerate(zip(keys, values, strict=True)):
        inputs[2 * i : 2 * i + 2] = [key, value]
        share = np.array([(place + 1.0) ** (power_a - 1) for place in free])
        place = 2 * pairs + 2 * free.pop(rng.choice(len(free), p=share / share.sum()))
        inputs[place], targets[place] = key, value
    return inputs, targets


def copy(rng: np.random.Generator, vocab: int, length: int, train: bool) -> Example:
    size = int(rng.integers(1, length // 2 + 1)) if train else length // 2
    string = [int(rng.integers(vocab - 2)) for _ in range(size)]
    blanks = length - 2 * size
    inputs = [*string, vocab - 1, *string[:-1], *[vocab - 2] * blanks]
    return inputs, [*[IGNORE] * size, *string, *[IGNORE] * blanks]
