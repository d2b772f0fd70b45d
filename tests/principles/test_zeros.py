"""Corollary 2.2, measured: how many coefficients of a row are zero, and what their states span."""

import pytest
import torch

from coefdyn.config.compose import compose
from coefdyn.principles.measure import mixer_of, random_input, zeros_and_ranks


@pytest.mark.parametrize(
    ("readout", "evolution"),
    [("kernel_relu", "identity"), ("identity", "scalar_mamba2"), ("kernel_exp", "identity")],
)
def test_zeros_of_a_row_are_counted_and_span_less_than_n(readout: str, evolution: str) -> None:
    """Against the definition's coefficients; a bound on every row, which means cannot hide."""
    config = compose(["scale=smoke", "model=softmax_attention", f"model/readout={readout}",
                      f"model/evolution={evolution}", "model/normalization=one"])  # fmt: skip
    mixer, length = mixer_of(config, 4, heads=1), 200
    zeros, ranks = zeros_and_ranks(mixer, length, sequences=1)  # a row is its own mean
    alpha = mixer.design.coefficients(random_input(mixer, 1, length)).alpha[0, 0]
    below = torch.ones_like(alpha).tril().bool()
    torch.testing.assert_close(zeros, ((alpha.abs() <= 1e-6) & below).sum(-1).double())
    assert (ranks <= zeros).all()
    assert ranks.max() <= 3
    if readout != "kernel_exp":
        assert zeros.max() > 3
        assert ranks.max() >= 1
