"""The paper's lemmas as properties of random instances."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from coefdyn.mixer.definition import sequence_model
from coefdyn.mixer.forms.features import feature_widths, linear_terms
from coefdyn.mixer.slots.readout import Exp, Polynomial, Relu, Sigmoid, Softplus
from coefdyn.mixer.slots.transition import Transition

FEW = settings(max_examples=25, deadline=None)
SEEDS = st.integers(0, 2**31)
NONNEGATIVE = (Exp(), Softplus(), Relu(), Sigmoid())


def normal(seed: int, *shape: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def identity_matrices(length: int, n: int) -> Tensor:
    return torch.eye(n, dtype=torch.float64).expand(length, n, n)


def transformed_keys(k: Tensor, A: Tensor) -> Tensor:
    """h_Lj, read off coordinate by coordinate with the identity readout."""
    length, n = k.shape
    ones = torch.ones(length, dtype=torch.float64)
    rows = []
    for r in range(n):
        q = torch.zeros_like(k)
        q[:, r] = 1
        _, alpha, _ = sequence_model(
            q, k, k, A, ones, lambda a, b: (a * b).sum(-1), lambda s, _: torch.ones_like(s)
        )
        rows.append(alpha[-1])
    return torch.stack(rows, -1)


@FEW
@given(
    SEEDS,
    st.integers(1, 3),
    st.lists(
        st.floats(-2, 2).filter(lambda a: a == 0 or abs(a) > 1e-3), min_size=2, max_size=4
    ).filter(lambda coefficients: coefficients[-1] != 0),
    st.floats(0.5, 1.1),
)
def test_lemma_1_polynomials_are_recurrences_of_finite_state(
    seed: int, n: int, polynomial: list[float], decay: float
) -> None:
    length = 6
    q, k, v = (normal(seed + i, length, n) for i in range(3))
    A = decay * identity_matrices(length, n)

    def readout(a: Tensor, b: Tensor) -> Tensor:
        s = (a * b).sum(-1)
        return sum((c * s**p for p, c in enumerate(polynomial)), torch.zeros_like(s))

    ones = torch.ones(length, dtype=torch.float64)
    y, _, _ = sequence_model(q, k, v, A, ones, readout, lambda s, _: torch.ones_like(s))
    ours = Polynomial(coefficients=polynomial)
    log_decay = torch.full((1, 1, length, 1), math.log(decay), dtype=torch.float64)
    terms = linear_terms(ours, q[None, None], k[None, None], Transition(log_decay=log_decay))
    assert feature_widths(ours, n) == [n**p for p, c in enumerate(polynomial) if c != 0]
    found = torch.zeros_like(y)
    for term in terms:
        state = torch.zeros(term.k.shape[-1], n, dtype=torch.float64)  # n^p numbers per value
        for t in range(length):
            decays = term.transition.log_decay
            state = state * (1 if decays is None else decays[0, 0, t].exp().unsqueeze(-1))
            state = state + term.k[0, 0, t].unsqueeze(-1) * v[t]
            found[t] += term.weight * term.q[0, 0, t] @ state
    torch.testing.assert_close(found, y, rtol=1e-8, atol=1e-8)


@FEW
@given(SEEDS, st.integers(2, 8))
def test_corollary_2_2_a_query_suppresses_at_most_n_minus_1_independent_keys(
    seed: int, n: int
) -> None:
    keys = normal(seed, n, n)
    few = keys[: n - 1]
    q = torch.linalg.svd(few).Vh[-1]  # orthogonal to all n - 1
    assert float((few @ q).abs().max()) < 1e-9
    assert float(q.norm()) == pytest.approx(1)
    assert torch.linalg.matrix_rank(keys) == n  # so that only q = 0 suppresses all n
    assert float((keys @ q).abs().max()) > 1e-9


@FEW
@given(SEEDS, st.sampled_from(["identity", "scalar", "diagonal", "householder"]))
def test_lemma_3_only_the_identity_hides_position(seed: int, structure: str) -> None:
    length, n = 7, 3
    x_q, k = normal(seed, length, n), normal(seed + 1, length, n)
    k[4] = k[1]
    lam = 0.3 + 0.6 * torch.sigmoid(normal(seed + 2, length, n))
    w = torch.nn.functional.normalize(normal(seed + 3, length, n), dim=-1)
    eye = identity_matrices(length, n)
    A = {
        "identity": eye,
        "scalar": lam[:, :1, None] * eye,
        "diagonal": torch.diag_embed(lam),
        "householder": eye - 1.5 * w.unsqueeze(-1) * w.unsqueeze(-2),
    }[structure]
    ones = torch.ones(length, dtype=torch.float64)
    _, alpha, _ = sequence_model(
        x_q, k, k, A, ones, lambda a, b: (a * b).sum(-1).exp(), lambda s, _: s
    )
    same = torch.allclose(alpha[-1, 1], alpha[-1, 4], rtol=1e-12)
    assert same == (structure == "identity")


@FEW
@given(SEEDS, st.floats(-1, 1))
def test_lemma_4a_a_scalar_scales_and_flips_all_alike(seed: int, factor: float) -> None:
    length, n = 4, 3
    k = normal(seed, length, n)
    h = transformed_keys(k, factor * identity_matrices(length, n))
    powers = torch.tensor([factor ** (length - 1 - j) for j in range(length)], dtype=torch.float64)
    torch.testing.assert_close(h, powers.unsqueeze(-1) * k)


@FEW
@given(SEEDS, st.lists(st.floats(-1, 1), min_size=3, max_size=3))
def test_lemma_4b_a_diagonal_scales_and_flips_each_channel(seed: int, factors: list[float]) -> None:
    k, lam = normal(seed, 2, 3), torch.tensor(factors, dtype=torch.float64)
    h = transformed_keys(k, torch.diag(lam).expand(2, 3, 3))
    torch.testing.assert_close(h[0], lam * k[0])
    torch.testing.assert_close(h[1], k[1])


@FEW
@given(SEEDS, st.floats(0, 2))
def test_lemma_4c_a_householder_acts_along_its_direction_only(seed: int, beta: float) -> None:
    k = normal(seed, 2, 4)
    w = torch.nn.functional.normalize(normal(seed + 1, 4), dim=-1)
    A = identity_matrices(2, 4) - beta * torch.outer(w, w)
    h = transformed_keys(k, A)[0]
    along, before = h @ w, k[0] @ w
    torch.testing.assert_close(along, (1 - beta) * before)
    torch.testing.assert_close(h - along * w, k[0] - before * w)
    eigenvalues = torch.linalg.eigvalsh(A[0])
    assert float(eigenvalues.abs().max()) <= 1 + 1e-9
    reflected = transformed_keys(k, identity_matrices(2, 4) - 2 * torch.outer(w, w))[0]
    torch.testing.assert_close(reflected.norm(), k[0].norm())  # two of them make a rotation


@settings(max_examples=8, deadline=None)
@given(SEEDS, st.integers(1, 6))
def test_lemma_5_the_variance_is_a_trace(seed: int, n: int) -> None:
    d, samples = 5, 200_000
    T_q, T_h, root = normal(seed, n, d), normal(seed + 1, n, d), normal(seed + 2, d, d)
    x_i, x_j = (normal(seed + 3 + i, samples, d) @ root.mT for i in range(2))
    score = ((x_i @ T_q.mT) * (x_j @ T_h.mT)).sum(-1)
    sigma = root @ root.mT
    expected = torch.trace(T_q @ sigma @ T_q.mT @ T_h @ sigma @ T_h.mT)
    torch.testing.assert_close(score.var(), expected, rtol=0.1, atol=0)
    assert abs(float(score.mean())) < 6 * float(expected.sqrt()) / samples**0.5


@FEW
@given(SEEDS, st.sampled_from(NONNEGATIVE), st.floats(0.8, 1.1))
def test_corollary_6_1_a_row_sum_bounds_coefficients(
    seed: int, readout: torch.nn.Module, factor: float
) -> None:
    length, n = 24, 2
    q, k = normal(seed, length, n), normal(seed + 1, length, n)
    ones = torch.ones(length, dtype=torch.float64)
    _, alpha, eta = sequence_model(
        q, k, k, factor * identity_matrices(length, n), ones,
        lambda a, b: readout((a * b).sum(-1)), lambda s, _: s,
    )  # fmt: skip
    weights = alpha[eta > 0] / eta[eta > 0].unsqueeze(-1)
    assert float(weights.min()) >= 0
    assert float(weights.max()) <= 1 + 1e-12
    torch.testing.assert_close(weights.sum(-1), torch.ones(len(weights), dtype=torch.float64))


@FEW
@given(
    st.sampled_from([Exp(), Softplus(), Relu()]),
    st.floats(0.1, 2),
    st.floats(1.01, 1.2),
    st.floats(0.5, 3),
)
def test_lemma_6_an_eta_that_keeps_up_bounds_growth(
    readout: torch.nn.Module, start: float, factor: float, m: float
) -> None:
    """s_i = start factor^i; g(s) = 1 + s for the linear ones, 1 + e^s for exp; eta_i = m g(s_i)."""
    s = start * factor ** torch.arange(30, dtype=torch.float64)
    g = 1 + (s.exp() if isinstance(readout, Exp) else s)
    alpha = readout(s)
    L = float((alpha / g).max())
    assert math.isfinite(L)
    assert float((alpha / (m * g)).max()) <= L / m + 1e-12
    kept, left = alpha / (m * g), alpha / m  # with eta = m alone it grows without bound
    assert float(kept[-1] / kept[0]) < float(left[-1] / left[0])


@FEW
@given(SEEDS, st.floats(0.5, 2), st.floats(-3, 3))
def test_lemma_2_more_scores_in_the_zero_set_more_maps_that_reach_it(
    seed: int, scale: float, start: float
) -> None:
    """Of random maps T_q, T_h those whose score of one pair lies in Z: a larger Z holds all that a
    smaller one does, and of thin sets the share is the length times a density that is the same."""
    x_i, x_j = normal(seed, 2, 4)
    T_q, T_h = normal(seed + 1, 40_000, 3, 4), normal(seed + 2, 40_000, 3, 4)
    score = ((T_q @ x_i) * (T_h @ x_j)).sum(-1) * scale / (x_i.norm() * x_j.norm())
    share = [float(((score >= start) & (score <= start + w)).double().mean()) for w in (0.1, 0.2)]
    assert share[0] <= share[1]
    half_line, interval = (
        float((score <= 0).double().mean()),
        float((score.abs() <= 1e-3).double().mean()),
    )
    assert half_line == pytest.approx(0.5, abs=0.02)  # relu: Z is a half-line
    assert interval < 0.01  # the identity: Z is a point, its near-zero set a thin interval
    if share[1] > 0.01:
        assert share[1] / share[0] == pytest.approx(2, rel=0.5)


@FEW
@given(SEEDS, st.integers(1, 12))
def test_corollary_2_1_fails_for_kernels_that_can_vanish(seed: int, n: int) -> None:
    """With psi = relu the zero set has the measure (3/4)^n; with psi > 0 it is empty."""
    q, k = normal(seed, 2, 50_000, n)
    zero = float(((q.relu() * k.relu()).sum(-1) == 0).double().mean())
    share = 0.75**n
    assert zero == pytest.approx(share, abs=5 * math.sqrt(share * (1 - share) / 50_000))
    assert float((q.exp() * k.exp()).sum(-1).min()) > 0


@FEW
@given(SEEDS, st.integers(2, 5), st.floats(0.2, 0.9))
def test_corollary_2_2_bounds_a_rank_and_not_a_count(seed: int, n: int, decay: float) -> None:
    """Keys that a query suppresses span n - 1 dimensions at most, however many they are. What is
    zero is so relative to |q| |h|: a decaying A_t makes everything small."""
    length = 4 * n
    q, k = normal(seed, n), normal(seed + 1, length, n)
    flat = k - (k @ q)[:, None] * q / (q @ q)  # all but every fourth are orthogonal to q
    k = torch.where(torch.arange(length)[:, None] % 4 == 0, k, flat)
    h = transformed_keys(k, decay * identity_matrices(length, n))
    alpha, size = h @ q, h.norm(dim=-1) * q.norm()
    suppressed = h[alpha.abs() <= 1e-9 * size]
    assert len(suppressed) == 3 * n > n - 1
    unit = suppressed / suppressed.norm(dim=-1, keepdim=True)
    assert torch.linalg.matrix_rank(unit, rtol=1e-9) <= n - 1
    everything = h / h.norm(dim=-1, keepdim=True)
    assert torch.linalg.matrix_rank(everything, rtol=1e-9) == n
    # By an absolute limit, as of the figure, old keys count too, and span everything.
    far = decay**200 * h[::4]
    assert float((far @ q).abs().max()) <= 1e-6 * float(q.norm()) * 100


@FEW
@given(SEEDS)
def test_lemma_3_fails_where_reflections_cancel(seed: int) -> None:
    """A_t is not I at any step, and yet equal tokens two steps apart have equal coefficients."""
    length, n = 7, 3
    q, k = normal(seed, length, n), normal(seed + 1, length, n)
    k[4] = k[2]
    w = torch.nn.functional.normalize(normal(seed + 2, n), dim=-1)
    A = identity_matrices(length, n) - 2 * torch.outer(w, w)
    assert float((A - identity_matrices(length, n)).abs().amax((1, 2)).min()) > 0.1
    ones = torch.ones(length, dtype=torch.float64)
    _, alpha, _ = sequence_model(
        q, k, k, A, ones, lambda a, b: (a * b).sum(-1), lambda s, _: torch.ones_like(s)
    )
    torch.testing.assert_close(alpha[-1, 2], alpha[-1, 4], rtol=1e-9, atol=1e-12)
    k[3] = k[4]  # one step apart they do differ
    _, alpha, _ = sequence_model(
        q, k, k, A, ones, lambda a, b: (a * b).sum(-1), lambda s, _: torch.ones_like(s)
    )
    assert not torch.isclose(alpha[-1, 3], alpha[-1, 4], rtol=1e-9)


@FEW
@given(st.floats(1.01, 2), st.floats(0.1, 0.9), st.floats(1.1, 3))
def test_the_remark_on_eta_of_coefficients(factor: float, below: float, above: float) -> None:
    """eta = f(alpha): alpha/eta stays if f grows linearly, vanishes if faster, grows without bound
    if slower."""
    alpha = factor ** torch.arange(1, 200, dtype=torch.float64)
    kept, gone, grown = (alpha / alpha**power for power in (1.0, above, below))
    assert float(kept.std()) < 1e-9
    assert bool((gone.diff() < 0).all())
    assert bool((grown.diff() > 0).all())
    expected = float(alpha[-1] / alpha[0]) ** (1 - below)
    assert float(grown[-1] / grown[0]) == pytest.approx(expected, rel=1e-6)
