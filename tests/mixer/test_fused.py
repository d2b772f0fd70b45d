"""Layers as compiled loops: equal to torch's own operators in value and in every gradient."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from coefdyn.mixer.compiled.kernels import without_kernels
from coefdyn.mixer.fused import (
    RMSNorm,
    divided,
    gated,
    gated_halves,
    scaled,
    short_convolution,
    unit,
)


def norm(x: Tensor, weight: Tensor) -> Tensor:
    layer = RMSNorm(12, eps=1e-6, dtype=x.dtype)
    return torch.func.functional_call(layer, {"weight": weight}, (x,))


LAYERS: dict[str, tuple[Callable[..., Tensor], list[tuple[int, ...]]]] = {
    "norm": (norm, [(5, 7, 12), (12,)]),
    "unit": (unit, [(5, 2, 7, 3)]),
    "scaled": (scaled, [(5, 2, 7, 3), (5, 2, 7)]),
    "divided": (divided, [(5, 2, 7, 3), (5, 2, 7)]),
    "gated": (gated, [(5, 7, 12), (5, 7, 12)]),
    "gated halves": (gated_halves, [(5, 7, 12)]),
    "short convolution": (short_convolution, [(5, 7, 12), (12, 4)]),
    "convolution longer than the sequence": (short_convolution, [(2, 3, 12), (12, 5)]),
    "convolution of width 1": (short_convolution, [(20, 3, 12), (12, 1)]),
}


def inputs(shapes: list[tuple[int, ...]], dtype: torch.dtype = torch.float64) -> list[Tensor]:
    own = torch.Generator().manual_seed(0)
    return [torch.randn(s, generator=own, dtype=dtype).requires_grad_() for s in shapes]


def both_passes(layer: Callable[..., Tensor], given: list[Tensor]) -> list[Tensor]:
    y = layer(*given)
    own = torch.Generator().manual_seed(1)
    weight = torch.randn(y.shape, generator=own, dtype=torch.float64).to(y.dtype)
    return [y, *torch.autograd.grad(y, given, weight)]


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_equals_torch_s_operators(name: str) -> None:
    layer, shapes = LAYERS[name]
    given = inputs(shapes)
    ours = both_passes(layer, given)
    assert ours[0].grad_fn is not None
    assert type(ours[0].grad_fn).__name__.startswith("_")  # the compiled one
    with without_kernels():
        theirs = both_passes(layer, given)
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", LAYERS)
def test_float32_is_as_exact_as_torch(name: str) -> None:
    layer, shapes = LAYERS[name]
    exact = both_passes(layer, inputs(shapes))
    given = [x.detach().float().requires_grad_() for x in inputs(shapes)]
    ours = both_passes(layer, given)
    with without_kernels():
        theirs = both_passes(layer, given)
    for mine, other, true in zip(ours, theirs, exact, strict=True):
        errors = [(x.double() - true).square().mean().sqrt() for x in (mine, other)]
        assert errors[0] <= 2 * errors[1] + 1e-8


@pytest.mark.parametrize("name", LAYERS)
def test_no_bit_depends_on_the_number_of_threads(name: str) -> None:
    layer, shapes = LAYERS[name]
    before = torch.get_num_threads()
    runs = []
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        runs.append(both_passes(layer, inputs(shapes, torch.float32)))
    torch.set_num_threads(before)
    for other in runs[1:]:
        assert all(torch.equal(a, b) for a, b in zip(runs[0], other, strict=True))


@pytest.mark.parametrize("name", LAYERS)
def test_members_of_a_population_have_weights_of_their_own(name: str) -> None:
    layer, shapes = LAYERS[name]
    members = [torch.stack([x.detach(), 2 * x.detach()]) for x in inputs(shapes)]
    together = torch.vmap(layer)(*members)
    for i in range(2):
        assert torch.equal(together[i], layer(*(x[i] for x in members)))


@pytest.mark.parametrize("name", LAYERS)
def test_any_strides_will_do(name: str) -> None:
    layer, shapes = LAYERS[name]
    given = inputs(shapes)
    turned = [x.detach().mT.contiguous().mT if x.ndim > 1 else x.detach() for x in given]
    turned = [x.requires_grad_() for x in turned]
    for one, other in zip(both_passes(layer, given), both_passes(layer, turned), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


def test_a_vector_of_nothing_has_no_direction() -> None:
    x = torch.zeros(1, 1, 2, 3, dtype=torch.float64)
    x[0, 0, 1, 0] = 1e-9
    x.requires_grad_()
    y = unit(x)
    (gradient,) = torch.autograd.grad(y.sum(), x)
    torch.testing.assert_close(y.flatten()[3], torch.tensor(1e-3, dtype=torch.float64))
    torch.testing.assert_close(gradient, torch.full_like(x, 1e6))


@pytest.mark.parametrize("name", LAYERS)
def test_a_nan_stays_one(name: str) -> None:
    layer, shapes = LAYERS[name]
    given = [x.detach().clone() for x in inputs(shapes, torch.float32)]
    given[0].view(-1)[0] = torch.nan
    assert layer(*given).view(-1)[0].isnan()


def test_half_precision_and_other_devices_go_torch_s_way() -> None:
    x = torch.randn(2, 3, 12, dtype=torch.bfloat16)
    assert gated_halves(x).dtype == torch.bfloat16
    assert gated_halves(torch.randn(2, 3, 12, device="meta")).shape == (2, 3, 6)


@pytest.mark.parametrize("name", LAYERS)
def test_second_derivatives_are_refused_not_wrong(name: str) -> None:
    layer, shapes = LAYERS[name]
    given = inputs(shapes)
    (first, *_) = torch.autograd.grad(layer(*given).square().sum(), given, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        first.square().sum().backward()
