"""What an A_t can track: hand-set transitions follow parity and words of S_3 and S_5 exactly.

A token g acts on the state as rho(g), the permutation matrix. It takes rank(I - rho(g))
reflections: 1 for a transposition, 2 for a cycle of three, 4 for a cycle of five.
"""

import itertools

import numpy as np
import pytest
import torch
from torch import Tensor

from coefdyn.mixer.forms.linear import linear_form
from coefdyn.mixer.slots.transition import Transition
from coefdyn.tasks.state_tracking.group_word import GroupWord
from coefdyn.tasks.state_tracking.groups import group_named
from coefdyn.tasks.state_tracking.parity import Parity
from coefdyn.tasks.task import Examples

LENGTH, COUNT = 40, 16


def examples(task: Parity | GroupWord) -> Examples:
    return task.draw(COUNT, "test", np.random.default_rng(0))


def states(transition: Transition, width: int) -> Tensor:
    """A_t ... A_2 A_1 at every step: the state begins as the identity, which the first `width`
    steps write while A_t = I."""
    length = next(x for x in vars(transition).values() if isinstance(x, Tensor)).shape[2]
    basis = torch.eye(width, dtype=torch.float64).expand(COUNT, 1, width, width)
    k = torch.cat([basis, basis.new_zeros(COUNT, 1, length - width, width)], dim=2)
    rows = []
    for q in torch.eye(width, dtype=torch.float64):
        y, _ = linear_form(q.expand(COUNT, 1, length, width).clone(), k, k, transition)
        rows.append(y[:, 0, width:])
    return torch.stack(rows, dim=-2)


def test_a_sign_per_step_tracks_parity() -> None:
    inputs, targets = examples(Parity(vocab_size=2, seq_len=LENGTH, num_train=1, num_test=1))
    signs = torch.from_numpy(1.0 - 2.0 * inputs)
    factor = torch.cat([torch.ones(COUNT, 1, dtype=torch.float64), signs], dim=1)
    state = states(Transition(factor=factor[:, None, :, None]), 1)
    assert ((state.flatten(1) < 0).long().numpy() == targets).all()


def test_decays_between_0_and_1_cannot_tell_parity_from_the_sign_of_the_state() -> None:
    """Products of positive numbers are positive, and I - beta w w^T with beta <= 1 has no negative
    eigenvalue: no state changes its sign back and forth."""
    generator = torch.Generator().manual_seed(0)
    w = torch.nn.functional.normalize(torch.randn(100, 4, generator=generator), dim=-1)
    beta = torch.rand(100, generator=generator)
    matrices = torch.eye(4) - beta[:, None, None] * w[:, :, None] * w[:, None, :]
    assert (torch.linalg.eigvalsh(matrices) >= -1e-6).all()


def matrix_of(permutation: tuple[int, ...]) -> np.ndarray:
    """rho(p): the basis vector i goes to p(i)."""
    matrix = np.zeros((len(permutation), len(permutation)))
    matrix[list(permutation), range(len(permutation))] = 1
    return matrix


def reflections(permutation: tuple[int, ...]) -> list[np.ndarray]:
    """Unit vectors of reflections whose product, the first one first, is rho(p): a cycle
    (c_1 ... c_m) is m - 1 transpositions."""
    vectors, seen = [], set()
    for start in range(len(permutation)):
        cycle, place = [], start
        while place not in seen:
            seen.add(place)
            cycle.append(place)
            place = permutation[place]
        for other in cycle[1:]:
            vector = np.zeros(len(permutation))
            vector[cycle[0]], vector[other] = 1, -1
            vectors.append(vector / np.sqrt(2))
    return vectors


@pytest.mark.parametrize(("group", "repeats"), [("S3", 2), ("S5", 4)])
def test_reflections_track_the_words_of_a_group(group: str, repeats: int) -> None:
    degree = int(group[1])
    elements = list(itertools.permutations(range(degree)))
    task = GroupWord(len(elements), LENGTH, 1, 1, group=group, tokens="generators")
    inputs, targets = examples(task)
    length = degree + LENGTH * repeats
    w = torch.zeros(COUNT, 1, length, degree, dtype=torch.float64)
    w[..., 0] = 1
    beta = torch.zeros(COUNT, 1, length, dtype=torch.float64)
    for row, word in enumerate(inputs):
        for t, token in enumerate(word):
            for r, vector in enumerate(reflections(elements[token])):
                step = degree + t * repeats + r
                w[row, 0, step], beta[row, 0, step] = torch.from_numpy(vector), 2.0
    products = states(Transition(direction=w, strength=beta), degree)[:, repeats - 1 :: repeats]
    expected = np.array([[matrix_of(elements[number]) for number in row] for row in targets])
    np.testing.assert_allclose(products.numpy(), expected, atol=1e-9)


def test_a_token_needs_as_many_reflections_as_the_rank_says() -> None:
    for group, ranks in (("S3", {1, 2}), ("S5", {1, 4})):
        elements = list(itertools.permutations(range(int(group[1]))))
        found = set()
        for number in group_named(group).generators:
            matrix = matrix_of(elements[number])
            rank = np.linalg.matrix_rank(np.eye(len(matrix)) - matrix)
            assert len(reflections(elements[number])) == rank
            found.add(int(rank))
        assert found == ranks
