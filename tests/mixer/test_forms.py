"""Every form equals definition.py, in value and in all gradients."""

import itertools
from dataclasses import replace

import pytest
import torch

from coefdyn.config.build import DESIGN_SLOTS
from coefdyn.config.plugins import options
from coefdyn.mixer.forms import sizes
from coefdyn.mixer.sequence_mixer import SequenceMixer
from coefdyn.testing import check_forms
from tests import designs


def assert_equal_to_definition(choice: designs.Choice, batch: int = 2, length: int = 11) -> None:
    check_forms(designs.mixer(choice), batch, length)


def test_covering_set_holds_every_accepted_pair() -> None:
    wanted = {pair for choice in designs.accepted() for pair in designs.pairs(choice)}
    covered = {pair for choice in designs.covering() for pair in designs.pairs(choice)}
    assert covered == wanted
    for position, slot in enumerate(DESIGN_SLOTS):
        assert {choice[position] for choice in designs.covering()} == set(options(f"model/{slot}"))


@pytest.mark.parametrize("choice", designs.covering(), ids="-".join)
@pytest.mark.usefixtures("short_chunks")
def test_forms_equal_definition(choice: designs.Choice) -> None:
    assert_equal_to_definition(choice)


@pytest.mark.slow
@pytest.mark.parametrize(
    "pair",
    list(itertools.product(options("model/evolution"), options("model/scaling"))),
    ids="-".join,
)
@pytest.mark.usefixtures("short_chunks")
def test_forms_equal_definition_over_the_full_product(pair: tuple[str, str]) -> None:
    for choice in designs.accepted():
        if choice[:2] == pair:
            assert_equal_to_definition(choice)


@pytest.mark.long
@pytest.mark.parametrize("evolution", options("model/evolution"))
@pytest.mark.parametrize("readout", ["softplus", "identity"])
def test_forms_equal_definition_with_chunks_of_real_size(evolution: str, readout: str) -> None:
    normalization = "row_sum" if readout == "softplus" else "one"
    assert_equal_to_definition((evolution, "inverse_sqrt", readout, normalization), length=70)


@pytest.mark.parametrize("evolution", options("model/evolution"))
@pytest.mark.parametrize(("batch", "length"), [(1, 1), (1, 5), (3, 2)])
@pytest.mark.usefixtures("short_chunks")
def test_forms_equal_definition_at_small_sizes(evolution: str, batch: int, length: int) -> None:
    for readout, normalization in (
        ("exp", "row_sum"),
        ("identity", "mlstm"),
        ("kernel_softplus", "one"),
    ):
        choice = (evolution, "inverse_sqrt", readout, normalization)
        if choice in designs.accepted():
            assert_equal_to_definition(choice, batch, length)


def rms(x: torch.Tensor) -> float:
    return x.pow(2).mean().sqrt().item()


@pytest.mark.long
@pytest.mark.parametrize(
    "choice",
    [
        pytest.param(choice, marks=[] if choice in designs.some() else pytest.mark.slow)
        for choice in designs.covering()
    ],
    ids="-".join,
)
def test_float32_error_is_at_most_twice_that_of_the_loop(
    choice: designs.Choice, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A design fails if it errs more on some sequences, and in the same place on others.

    A score within rounding of relu's kink, or a row sum near zero, magnifies any rounding, and the
    loop's own error can be small by luck. A form that is less exact fails on both.
    """
    small = {"linear": replace(sizes.CPU.linear, plain=16),
             "quadratic": replace(sizes.CPU.quadratic, plain=16, per_channel=16)}  # fmt: skip
    monkeypatch.setattr(sizes, "CPU", replace(sizes.CPU, **small))
    single = designs.mixer(choice, torch.float32)
    batch, length = (32, 24) if designs.signed_sums(single) else (16, 40)

    worse = _worse_than_the_loop(choice, single, designs.inputs(single, batch, length))
    if worse:
        others = designs.inputs(single, 2 * batch, length).detach()[batch:]
        again = _worse_than_the_loop(choice, single, others.requires_grad_())
        worse = {place: (ratio, again[place]) for place, ratio in worse.items() if place in again}
    assert not worse, "times the loop's error, on two sets of sequences"


def _worse_than_the_loop(
    choice: designs.Choice, single: SequenceMixer, x: torch.Tensor
) -> dict[tuple[str, str], float]:
    """How many times as far as the loop a form is from float64, if more than twice.

    It is the rms error of y and of every gradient, over several chunks. For y and the gradient of
    x, the median over sequences: a few have a row sum near zero. A parameter's gradient is a sum
    over all steps in which most cancels: 1e-5 of its size is good enough too.
    """
    exact = designs.mixer(choice)
    exact.load_state_dict(single.state_dict())
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(*x.shape[:2], designs.SIZES["d_value"], generator=generator)
    truth = designs.values_and_gradients(
        exact, "definition", x.detach().double().requires_grad_(), weight.double()
    )
    loop = designs.values_and_gradients(single, "definition", x, weight)
    largest = max(rms(gradient) for name, gradient in truth.items() if name not in ("y", "x"))
    worse = {}
    for form in designs.forms_of(single):
        found = designs.values_and_gradients(single, form, x, weight)
        for name, expected in truth.items():
            per_sequence = tuple(range(1, expected.ndim)) if name in ("y", "x") else None
            error, loop_error = (
                (run[name] - expected).pow(2).mean(per_sequence).sqrt() for run in (found, loop)
            )
            if not loop_error.isfinite().all():  # growth meets exp: the plain loop overflows
                continue
            if designs.signed_sums(single) and per_sequence is None:  # one sum near zero rules it
                continue
            floor = 0.0
            if per_sequence is None:
                floor = 0.5e-5 * (rms(expected) + 0.1 * largest)
            ratio = 2 * (error / (2 * loop_error).clamp(min=2 * floor + 1e-12)).median()
            if not ratio <= 2:
                worse[form, name] = ratio.item()
    return worse
