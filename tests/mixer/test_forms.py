"""Every form equals definition.py, in value and in all gradients."""

import itertools

import pytest
import torch

from coefdyn.training.build import DESIGN_SLOTS, options
from tests import designs


def assert_equal_to_definition(choice: designs.Choice, batch: int = 2, length: int = 11) -> None:
    made = designs.mixer(choice)
    x = designs.inputs(made, batch, length)
    weight = torch.randn(batch, length, designs.SIZES["d_value"], dtype=torch.float64)
    expected = designs.run(made, "definition", x, weight)
    largest_gradient = max(g.abs().max() for name, g in expected.items() if name != "y")
    for form in designs.forms(made):
        for name, value in designs.run(made, form, x, weight).items():
            reference = expected[name]
            # Some gradients vanish by an invariance of the design: there, only rounding is left.
            scale = reference.abs().max().clamp(min=1e-4 * largest_gradient)
            error = (value - reference).abs().max() / scale
            assert error <= 1e-9, f"{choice}, {form} form, {name}: off by {error:.1e}"


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


@pytest.mark.parametrize("evolution", options("model/evolution"))
@pytest.mark.parametrize("readout", ["softplus", "identity"])
def test_forms_equal_definition_with_chunks_of_real_size(evolution: str, readout: str) -> None:
    normalization = "row_sum" if readout == "softplus" else "one"
    assert_equal_to_definition((evolution, "inverse_sqrt", readout, normalization), length=70)


@pytest.mark.parametrize("evolution", options("model/evolution"))
@pytest.mark.parametrize(("batch", "length"), [(1, 1), (1, 5), (3, 2)])
@pytest.mark.usefixtures("short_chunks")
def test_forms_equal_definition_at_small_sizes(evolution: str, batch: int, length: int) -> None:
    for readout, normalization in (("exp", "row_sum"), ("identity", "mlstm")):
        choice = (evolution, "inverse_sqrt", readout, normalization)
        assert_equal_to_definition(choice, batch, length)


@pytest.mark.parametrize("evolution", options("model/evolution"))
@pytest.mark.parametrize("readout", ["exp", "softplus", "relu", "identity", "taylor_exp"])
def test_float32_error_is_at_most_twice_that_of_the_loop(evolution: str, readout: str) -> None:
    """rms error of y, and of the gradient of x, against float64, in each of 24 sequences.

    The median over sequences: a few have a row sum near zero, which magnifies any rounding.
    """
    normalization = "one" if readout == "identity" else "row_sum"
    choice = (evolution, "inverse_sqrt", readout, normalization)
    single, exact = designs.mixer(choice, torch.float32), designs.mixer(choice)
    exact.load_state_dict(single.state_dict())
    x = torch.randn(24, 40, designs.SIZES["d_model"], requires_grad=True)
    weight = torch.randn(24, 40, designs.SIZES["d_value"])
    truth = designs.run(exact, "definition", x.detach().double().requires_grad_(), weight.double())

    def rms_error(found: dict[str, torch.Tensor], name: str) -> torch.Tensor:
        return (found[name] - truth[name]).pow(2).mean((1, 2)).sqrt()

    loop = designs.run(single, "definition", x, weight)
    for form in designs.forms(single):
        found = designs.run(single, form, x, weight)
        for name in ("y", "x"):
            assert found[name].isfinite().all()
            ratio = rms_error(found, name) / rms_error(loop, name)
            # Not a number where the plain loop overflows, as it does where growth meets exp.
            assert not ratio.nanmedian() > 2, f"{form} form, {name}: {ratio.nanmedian():.2f}"
