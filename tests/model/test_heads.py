"""What the two heads make of the features, and what they do not look at."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from coefdyn.config.build import build_model
from coefdyn.config.compose import compose
from coefdyn.model.heads import AutoEncoderHead, NextTokenHead
from coefdyn.model.model import SequenceModel

WIDTH, TOKENS, LENGTH = 6, 11, 7


def auto_encoder() -> AutoEncoderHead:
    head = AutoEncoderHead(WIDTH, TOKENS).double()
    for parameter in head.parameters():  # norms and biases included
        torch.nn.init.normal_(parameter, std=0.7)
    return head


def features() -> Tensor:
    return torch.randn(2, LENGTH, WIDTH, dtype=torch.float64)


def test_next_token_logits_are_a_linear_map_of_their_own_step() -> None:
    head, x = NextTokenHead(WIDTH, TOKENS).double(), features()
    torch.testing.assert_close(head(x), x @ head.weight.T)
    assert head.bias is None
    changed = x.clone()
    changed[:, 3] += 1
    differs = (head(changed) != head(x)).any(-1).any(0)
    assert differs.tolist() == [t == 3 for t in range(LENGTH)]


def test_an_auto_encoder_reads_the_last_step_alone() -> None:
    head, x = auto_encoder(), features()
    before = head(x)
    others = x.clone()
    others[:, :-1] = torch.randn(2, LENGTH - 1, WIDTH, dtype=torch.float64)
    assert torch.equal(head(others), before)
    last = x.clone()
    last[:, -1] += 0.1
    assert (head(last) != before).any(-1).all(), "a step does not depend on the last one"


def test_an_auto_encoder_tells_every_place_from_every_other() -> None:
    logits = auto_encoder()(features())
    apart = (logits.unsqueeze(1) - logits.unsqueeze(2)).abs().amax(-1)
    assert (apart[:, ~torch.eye(LENGTH, dtype=torch.bool)] > 1e-3).all()


def test_the_gradient_of_an_auto_encoder_reaches_the_last_step_alone() -> None:
    x = features().requires_grad_()
    logits = auto_encoder()(x)
    for place in range(LENGTH):
        (gradient,) = torch.autograd.grad(logits[:, place].sum(), x, retain_graph=True)
        reached = gradient.ne(0).any(-1)
        assert reached.tolist() == [[False] * (LENGTH - 1) + [True]] * 2, place


def test_an_auto_encoder_is_its_equation() -> None:
    """W_out MLP(x_last + P_t): sines and cosines of t, two rounds of Norm, Linear, GELU, a Norm."""
    head, x = auto_encoder(), features()
    angle = torch.arange(LENGTH).double()[:, None] / 1e4 ** (torch.arange(3).double() / 3)
    y = x[:, -1:] + torch.cat([angle.sin(), angle.cos()], dim=-1)

    def rms(y: Tensor, weight: Tensor) -> Tensor:
        return y / (y.square().mean(-1, keepdim=True) + 1e-6).sqrt() * weight

    first, second, norm = head.mlp
    for step in (first, second):
        y = F.linear(rms(y, step[0].weight), step[1].weight, step[1].bias)
        y = y * (1 + torch.erf(y / math.sqrt(2))) / 2
    expected = rms(y, norm.weight) @ head.output.weight.T
    torch.testing.assert_close(head(x), expected, rtol=1e-10, atol=1e-12)


def restoring() -> SequenceModel:
    return build_model(compose(["scale=smoke", "task=compression"])).double()


def test_only_compression_has_an_auto_encoder() -> None:
    assert isinstance(restoring().head, AutoEncoderHead)
    for task in ("memorization", "noisy_recall"):
        made = build_model(compose(["scale=smoke", f"task={task}"]))
        assert isinstance(made.head, NextTokenHead)


def test_every_token_reaches_every_logit_of_a_model_that_restores() -> None:
    """Through the last step, which attends to all of them."""
    model = restoring()
    tokens = torch.arange(8).unsqueeze(0) % 7
    before = model(tokens)
    for place in range(8):
        changed = tokens.clone()
        changed[:, place] = 7
        assert (model(changed) != before).any(-1).all(), place


def test_the_last_norm_of_a_model_has_an_eps_of_1e_6() -> None:
    """Features of the size of its square root, where eps matters."""
    model = build_model(compose(["scale=smoke", "model.n_layers=1"])).double()
    x = 1e-3 * torch.randn(1, 4, 16, dtype=torch.float64)
    expected = x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt()
    torch.testing.assert_close(model.norm(x), expected, rtol=1e-10, atol=0)
