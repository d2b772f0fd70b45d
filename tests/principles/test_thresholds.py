"""The numbers that decide between pass, warn and break, on both sides of each."""

import math

import pytest
import torch

from coefdyn.config.build import build_design_mixer
from coefdyn.config.compose import Config, compose
from coefdyn.mixer.design import Design
from coefdyn.mixer.slots.readout import Readout
from coefdyn.principles import check as checking
from coefdyn.principles import invariance, measure
from coefdyn.principles.check import _position, _selectivity, _stability, _variance
from coefdyn.principles.measure import Trend

SIZES = (16, 64, 256, 1024)


def power_law(level: float, exponent: float, at: int = 64) -> Trend:
    return Trend(SIZES, tuple(level * (size / at) ** exponent for size in SIZES))


def design(*overrides: str) -> Design:
    return build_design_mixer(compose(["scale=smoke", *overrides])).design


def test_a_trend_knows_its_exponent_and_its_value_between_sizes() -> None:
    trend = power_law(3.0, 1.5)
    assert trend.exponent == pytest.approx(1.5, rel=1e-12)
    for size in (8, 64, 100, 4096):
        assert trend.at(size) == pytest.approx(3.0 * (size / 64) ** 1.5, rel=1e-12)
    # A line through logarithms, and from there the nearest size on that scale: 32 is as near to
    # 16 as to 64, 33 is nearer to 64.
    bent = Trend((16, 64, 256), (1.0, 4.0, 4.0))
    assert bent.exponent == pytest.approx(0.5, rel=1e-12)
    assert bent.at(33) == pytest.approx(4.0 * (33 / 64) ** 0.5, rel=1e-12)
    assert bent.at(31) == pytest.approx(1.0 * (31 / 16) ** 0.5, rel=1e-12)
    assert Trend((1, 10), (1.0, math.inf)).exponent == pytest.approx(300, rel=1e-9)


@pytest.mark.parametrize(
    ("level", "exponent", "verdict", "words"),
    [
        (9.99, 0.249, "pass", "O(1) in the head dimension"),
        (9.99, -0.249, "pass", "O(1) in the head dimension"),
        (9.99, -0.251, "pass", "falls with n"),
        (10.01, 0.0, "break", "far from 1"),
        (10.01, -0.5, "break", "far from 1"),
        (1.01, 0.251, "break", "grows with n"),
        # At n/H = 64 it is 0.25; with the square root of n it is 1 at sixteen times that.
        (0.25, 0.5, "pass", "stays below 1 by its level, up to n/H = 1024"),
        (0.99, 0.251, "pass", "stays below 1 by its level, up to n/H = 66"),
    ],
)
def test_the_variance_of_a_score(level: float, exponent: float, verdict: str, words: str) -> None:
    found = _variance(power_law(level, exponent), 64)
    assert found.verdict == verdict
    assert words in found.reason


@pytest.mark.parametrize(
    ("overrides", "grown", "verdict"),
    [
        ([], 9.99, "pass"),
        ([], 10.01, "break"),
        ([], math.inf, "break"),
        # eta follows the coefficients, so that nothing vanishes.
        ([], 0.0, "pass"),
        (["model/normalization=power"], 0.101, "pass"),
        (["model/normalization=power"], 0.099, "warn"),
        # What shrinks is no fault of an eta if A_t may grow.
        (["model/normalization=power", "model/evolution=constant", "model.factor=1.05"],
         0.05, "pass"),
        (["model=mlstm", "model/normalization=one"], 9.99, "warn"),
        (["model=mlstm"], 9.99, "pass"),
    ],
)  # fmt: skip
def test_growth_of_coefficients(overrides: list[str], grown: float, verdict: str) -> None:
    """From the shortest to the longest sequence, whatever is between."""
    trend = Trend((32, 64, 256), (2.0, 1e6, 2.0 * grown))
    assert _stability(design(*overrides), trend).verdict == verdict


@pytest.mark.parametrize(
    ("difference", "verdict"), [(0.0, "break"), (1e-9, "break"), (1.01e-9, "pass")]
)
def test_how_much_makes_a_difference_between_places(
    difference: float, verdict: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checking, "positional_difference", lambda *_: difference)
    config = compose(["scale=smoke", "model/position=none", "model/evolution=constant"])
    made = build_design_mixer(config).design
    assert _position(config, made, 8).verdict == verdict


def test_near_zero_means_a_thousandth() -> None:
    assert _selectivity(design("model/readout=identity")).number == "[-0.001, 0.001]"
    assert _selectivity(design("model/readout=exp")).number == "[-inf, -6.908]"


@pytest.mark.parametrize(
    ("ends", "limited"),
    [
        ([(-0.99, 0.99)], True),
        ([(-1.0, 0.5)], False),
        ([(-0.5, 1.0)], False),
        ([(0.0, 0.5)], False),
        ([(-0.5, 0.0)], False),
        ([(-0.5, -0.4), (-0.1, 0.1)], False),
    ],
)
def test_zeros_are_limited_by_one_interval_around_a_zero_score(
    ends: list[tuple[float, float]], limited: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = design("model/readout=silu")
    monkeypatch.setattr(Readout, "near_zero_set", lambda *_: ends)
    number = checking._zero_limit(made, 8).number
    assert number == ("of independent keys at most 7" if limited else "no limit")


def constant(factor: float) -> Config:
    """alpha_ij = factor^(i - j) q . k, eta = 1."""
    return compose([
        "scale=smoke", "model/evolution=constant", f"model.factor={factor}", "model/scaling=one",
        "model/readout=identity", "model/normalization=one",
    ])  # fmt: skip


def test_growth_is_the_median_of_the_largest_in_rows_of_the_last_quarter() -> None:
    config, length = constant(1.1), 24
    trend = measure.coefficient_growth(config, 4, lengths=(length,))
    mixer = measure.mixer_of(config, 4, heads=2)
    given = measure.random_input(mixer, 2, length)
    largest = []
    for b in range(2):
        for h in range(2):
            for i in range(18, length):
                sizes = [abs(float(given.q[b, h, i] @ given.k[b, h, j])) * 1.1 ** (i - j)
                         for j in range(i + 1)]  # fmt: skip
                largest.append(max(sizes))
    # Of an even number, torch takes the lower of the two in the middle.
    assert trend.values == pytest.approx((sorted(largest)[len(largest) // 2 - 1],), rel=1e-9)


def test_the_variance_is_that_of_a_key_just_written() -> None:
    """E (b q . k)^2 of standard normal q and k is b^2 n: n for b = 1, 1 for 1/sqrt(n)."""
    trend = measure.score_variance(constant(0.5), sizes=(16, 256))
    assert trend.values == pytest.approx((16, 256), rel=0.15)
    scaled = compose(["scale=smoke", "model/scaling=inverse_sqrt"])
    assert measure.score_variance(scaled, sizes=(16, 256)).values == pytest.approx((1, 1), rel=0.15)
    units = compose(["scale=smoke", "model/scaling=one", "model.unit_qk=true"])
    found = measure.score_variance(units, sizes=(16, 256)).values
    assert found == pytest.approx((1 / 16, 1 / 256), rel=0.15)


def test_eigenvalues_are_those_of_the_matrices() -> None:
    assert torch.allclose(measure.spectrum(constant(0.5), 8).abs(), torch.tensor(0.5).double())
    reflection = compose(["scale=smoke", "model/evolution=householder_key_fixed"])
    values = measure.spectrum(reflection, 64).real.reshape(-1, measure.LARGEST_SPECTRUM)
    assert torch.allclose(values.sort(-1).values[:, 0], torch.tensor(-1.0).double())
    assert torch.allclose(values.sort(-1).values[:, 1:], torch.tensor(1.0).double())


@pytest.mark.parametrize(("difference", "same"), [(1e-6, True), (1.01e-6, False)])
def test_how_much_two_designs_may_differ_and_be_one_function(
    difference: float, same: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(invariance, "largest_difference", lambda *_: difference)
    assert invariance.same_function([], [])[0] == same


def test_the_difference_of_designs_is_relative_to_the_largest_output() -> None:
    """With b = 1 and 1/sqrt(n), the identity under a post-norm is one function and exp is not."""
    both = [("model/readout=identity", "model/normalization=one", f"model/scaling={b}")
            for b in ("one", "inverse_sqrt")]  # fmt: skip
    assert invariance.largest_difference(*both) < 1e-12
    exp = invariance.largest_difference(("model/scaling=one",), ("model/scaling=inverse_sqrt",))
    assert 1e-4 < exp < 1
