"""Each fact about the tasks of state tracking on thousands of sequences; agreement with loops."""

import itertools

import numpy as np
import pytest

from coefdyn.tasks.state_tracking.groups import GROUPS, Group, group_named
from coefdyn.tasks.task import IGNORE
from tests.tasks import loops
from tests.tasks.compared import assert_same_distribution, stack
from tests.tasks.makers import N, arithmetic, flip_flop, group_word, nested, parity

SPLITS = ("train", "test")
EVEN = [p for p in itertools.permutations(range(4)) if np.linalg.det(np.eye(4)[list(p)]) > 0]


@pytest.mark.parametrize("split", SPLITS)
def test_parity_is_that_of_each_prefix(split: str) -> None:
    inputs, targets = parity().generate(split, 0)
    for bits, wanted in zip(inputs.tolist(), targets.tolist(), strict=True):
        assert wanted == [sum(bits[: t + 1]) % 2 for t in range(40)]
    assert_same_distribution(
        parity().generate(split, 1), stack(lambda rng: loops.parity(rng, 40)), 2
    )


def text_of(tokens: list[int], modulus: int) -> str:
    signs = "0123456789"[:modulus] + "+-*=_()"
    return "".join(signs[token] for token in tokens)


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("modulus", [2, 5, 7])
@pytest.mark.parametrize("make", [arithmetic, nested])
def test_python_agrees_with_every_value(make, modulus: int, split: str) -> None:  # type: ignore[no-untyped-def]
    task = make(modulus=modulus, vocab_size=modulus + 7)
    inputs, targets = task.generate(split, 0)
    sizes = set()
    for tokens, wanted in zip(inputs.tolist(), targets.tolist(), strict=True):
        text = text_of(tokens, modulus)
        expression, _, rest = text.partition("=")
        assert set(rest) <= {"_"}
        end = len(expression)
        assert wanted == [IGNORE] * end + [eval(expression) % modulus] + [IGNORE] * len(rest)
        digits, operators = (sum(c in s for c in expression) for s in ("0123456789", "+-*"))
        assert digits == operators + 1
        assert expression.count("(") == expression.count(")") == operators * task.brackets
        sizes.add(digits)
    most = 9 if task.brackets else 12
    assert sizes == (set(range(1, most + 1)) if split == "train" else {most})


def test_every_operator_has_its_own_brackets() -> None:
    """What is bracketed is one operator between two digits or brackets: nothing to precede."""
    inputs, _ = nested().generate("test", 0)
    for tokens in inputs[:500].tolist():
        text = text_of(tokens, 5).partition("=")[0]
        while len(text) > 1:
            inner = text.rindex("(")
            assert text[inner + 1] in "01234"
            assert text[inner + 2] in "+-*"
            assert text[inner + 3 : inner + 5][-1] == ")"
            text = f"{text[:inner]}0{text[inner + 5 :]}"


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize(("make", "length"), [(arithmetic, 24), (nested, 35)])
def test_expressions_have_the_distribution_of_plain_loops(make, length: int, split: str) -> None:  # type: ignore[no-untyped-def]
    task = make()
    slow = stack(lambda rng: loops.arithmetic(rng, 5, length, task.brackets, split == "train"))
    assert_same_distribution(task.generate(split, 0), slow, 12)


def test_products_favour_zero_inside_brackets_only() -> None:
    for make, share in ((arithmetic, 0.2), (nested, 0.3)):
        targets = make(seq_len=64).generate("test", 0).targets
        assert (targets[targets != IGNORE] == 0).mean() == pytest.approx(share, abs=0.03)


@pytest.mark.parametrize("name", GROUPS)
def test_the_tables_are_groups(name: str) -> None:
    group: Group = group_named(name)
    table, n = group.table, group.order
    assert n == {"Z2": 2, "Z60": 60, "S3": 6, "A4": 12, "S5": 120}[name]
    assert np.array_equal(table[0], np.arange(n)), "0 is the identity"
    assert np.array_equal(table[:, 0], np.arange(n))
    assert (np.sort(table, axis=0) == np.arange(n)[:, None]).all()
    a, b, c = np.random.default_rng(0).integers(n, size=(3, 5000))
    assert np.array_equal(table[table[a, b], c], table[a, table[b, c]])
    assert np.array_equal(table, table.T) == name.startswith("Z")
    reached = {0}
    while more := {int(table[x, g]) for x in reached for g in group.generators} - reached:
        reached |= more
    assert len(reached) == n, "the generators generate it"


def test_the_left_factor_of_a_product_acts_first() -> None:
    """In S3, (12) then (123): 1 goes to 2 goes to 3. The other way: 1 goes to 2 goes to 1."""
    swap, turn = group_named("S3").generators
    elements = list(itertools.permutations(range(3)))
    table = group_named("S3").table
    assert elements[table[swap, turn]] == (2, 1, 0)
    assert elements[table[turn, swap]] == (0, 2, 1)


@pytest.mark.parametrize(
    ("name", "elements", "letters"),
    [
        ("Z2", [(0, 1), (1, 0)], [0, 1]),
        ("S3", list(itertools.permutations(range(3))), [2, 3]),
        ("A4", EVEN, [3, 4]),
        ("S5", list(itertools.permutations(range(5))), [24, 33]),
    ],
)
@pytest.mark.parametrize("tokens", ["generators", "elements"])
def test_words_of_permutations(name: str, elements: list, letters: list, tokens: str) -> None:
    """The numbers of the generators are written out: (12) and (123), or what the group has."""
    task = group_word(group=name, tokens=tokens, seq_len=12)
    inputs, targets = task.generate("test", 0)
    used = letters if tokens == "generators" else list(range(len(elements)))
    assert sorted(set(inputs.ravel().tolist())) == sorted(used)
    for word, wanted in zip(inputs[:300].tolist(), targets[:300].tolist(), strict=True):
        where = list(range(len(elements[0])))
        for letter, product in zip(word, wanted, strict=True):
            where = [elements[letter][point] for point in where]
            assert elements[product] == tuple(where)
    slow = stack(lambda rng: loops.group_word(rng, elements, used, 12))
    assert_same_distribution(task.generate("train", 0), slow, len(elements))


@pytest.mark.parametrize("tokens", ["generators", "elements"])
def test_words_of_numbers_are_sums(tokens: str) -> None:
    task = group_word(group="Z60", tokens=tokens, seq_len=100)
    inputs, targets = task.generate("train", 0)
    assert np.array_equal(targets, inputs.cumsum(1) % 60)
    assert set(inputs.ravel().tolist()) == set(range(60 if tokens == "elements" else 2))
    if tokens == "elements":
        shares = np.bincount(inputs.ravel()) / inputs.size
        assert shares == pytest.approx(np.full(60, 1 / 60), abs=0.002)


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("p_ignore", [0.0, 0.6, 0.8])
def test_a_read_gives_the_bit_written_last(p_ignore: float, split: str) -> None:
    task = flip_flop(p_ignore=p_ignore)
    inputs, targets = task.generate(split, 0)
    counts = np.bincount(inputs[:, 2:-2:2].ravel(), minlength=5) / (N * 18)
    other = (1 - p_ignore) / 2
    assert counts == pytest.approx([0, 0, other, other, p_ignore], abs=0.01)
    for tokens, wanted in zip(inputs.tolist(), targets.tolist(), strict=True):
        assert (tokens[0], tokens[-2]) == (2, 3)
        memory = None
        for pair in range(20):
            instruction, bit = tokens[2 * pair : 2 * pair + 2]
            memory = bit if instruction == 2 else memory
            assert wanted[2 * pair : 2 * pair + 2] == [
                memory if instruction == 3 else IGNORE,
                IGNORE,
            ]
            assert instruction != 3 or bit == memory, "the answer stands after the read"
    slow = stack(lambda rng: loops.flip_flop(rng, 40, p_ignore))
    assert_same_distribution(task.generate(split, 1), slow, 5)
