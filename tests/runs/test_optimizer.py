"""AdamW and its schedule, by hand."""

import copy
import math
from typing import Any

import pytest
import torch
from torch import Tensor

from coefdyn.adamw import AdamW
from coefdyn.config.build import build_optimizer
from coefdyn.config.compose import compose
from coefdyn.runs.progress import cosine
from coefdyn.runs.trainer import autocast

LR, DECAY = 0.1, 0.25


def steps(gradients: list[float], *overrides: str) -> list[float]:
    """A weight that starts at 1, after each of these gradients."""
    given = [f"optimizer.lr={LR}", f"optimizer.weight_decay={DECAY}", *overrides]
    weight = torch.nn.Parameter(torch.ones(1, dtype=torch.float64))
    optimizer = build_optimizer(compose(given), [weight])
    found = []
    for gradient in gradients:
        weight.grad = torch.full_like(weight, gradient)
        optimizer.step()
        found.append(weight.item())
    return found


def adamw(gradients: list[float], beta1: float, beta2: float, eps: float) -> list[float]:
    """Loshchilov and Hutter 2019, Algorithm 2."""
    weight, mean, square, found = 1.0, 0.0, 0.0, []
    for t, gradient in enumerate(gradients, start=1):
        mean = beta1 * mean + (1 - beta1) * gradient
        square = beta2 * square + (1 - beta2) * gradient**2
        size = math.sqrt(square / (1 - beta2**t)) + eps
        weight = weight - LR * DECAY * weight - LR * mean / (1 - beta1**t) / size
        found.append(weight)
    return found


def test_without_a_gradient_a_weight_shrinks_by_one_minus_lr_times_decay() -> None:
    """Decoupled: as part of the gradient, the decay would move it by lr, whatever its size."""
    factor = 1 - LR * DECAY
    assert steps([0.0] * 3) == pytest.approx([factor, factor**2, factor**3], rel=1e-14)


@pytest.mark.parametrize(
    ("overrides", "betas"),
    [
        (["scale=smoke"], (0.9, 0.98)),
        (["experiment=principle5_wikitext", "scale=smoke"], (0.9, 0.95)),
        (["experiment=all_principles_lm", "scale=smoke"], (0.9, 0.95)),
    ],
)
def test_steps_are_those_of_adamw(overrides: list[str], betas: tuple[float, float]) -> None:
    """Gradients that change in size and sign, and one so small that eps = 1e-8 matters."""
    gradients = [0.5, -2.0, 0.1, 3.0]
    assert steps(gradients, *overrides) == pytest.approx(adamw(gradients, *betas, 1e-8), rel=1e-12)
    assert steps([1e-8], *overrides) == pytest.approx(adamw([1e-8], *betas, 1e-8), rel=1e-12)


def test_weight_decay_acts_on_every_parameter() -> None:
    """Norms, biases and embeddings included, as in the original benchmark."""
    from coefdyn.config.build import build_model

    config = compose(["scale=smoke", "model=mamba2", f"optimizer.lr={LR}",
                      f"optimizer.weight_decay={DECAY}"])  # fmt: skip
    model = build_model(config)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    optimizer = build_optimizer(config, model.parameters())
    assert [group["lr"] for group in optimizer.param_groups] == [LR]
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()

    def shrunk(name: str) -> Tensor:
        return before[name] * (1 - LR * DECAY)

    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameter.data, shrunk(name), msg=name)


@pytest.mark.parametrize(
    ("total", "warmup", "shares"),
    [
        # No warm-up: from the peak, at the middle half of it, and almost 0 at the last step.
        (8, 0, {0: 1.0, 2: (2 + math.sqrt(2)) / 4, 4: 0.5, 7: 0.0380602337443566, 8: 0.0}),
        # The rise ends at the peak, with which the cosine begins; 6 steps of it follow.
        (10, 4, {0: 0.25, 1: 0.5, 2: 0.75, 3: 1.0, 4: 1.0, 6: 0.75, 7: 0.5, 8: 0.25,
                 9: 0.0669872981077807, 10: 0.0, 99: 0.0}),
        (3, 3, {0: 1 / 3, 2: 1.0, 3: 1.0}),
        # The paper's text runs.
        (130_000, 3000, {0: 1 / 3000, 2999: 1.0, 3000: 1.0, 66_500: 0.5,
                         129_999: 1.5298e-10}),
    ],
)  # fmt: skip
def test_the_schedule_by_hand(total: int, warmup: int, shares: dict[int, float]) -> None:
    found = {step: cosine(total, warmup, step) for step in shares}
    assert found == pytest.approx(shares, rel=1e-4, abs=1e-14)


@pytest.mark.parametrize(("precision", "half"), [("fp32", False), ("bf16-mixed", True)])
def test_what_lightning_does_not_compute_has_the_precision_of_the_run(
    precision: str, half: bool
) -> None:
    trainer = compose(["scale=smoke", f"trainer.precision={precision}"]).settings.trainer
    with autocast(trainer, torch.device("cpu")):
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == (
            torch.bfloat16 if half else torch.float32
        )


def models(count: int) -> list[torch.nn.Module]:
    torch.manual_seed(0)
    first = torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.Linear(7, 3))
    return [first, *(copy.deepcopy(first) for _ in range(count - 1))]


def test_one_counter_changes_no_bit_of_torchs_adamw() -> None:
    """Also when a parameter has no gradient at times, after a restart, and with a group that
    stops learning."""
    ours, theirs = models(2)
    given = [f"optimizer.lr={LR}", "optimizer.weight_decay=0.1", "optimizer.eps=1e-8"]

    def groups(model: torch.nn.Module) -> list[dict[str, Any]]:
        return [{"params": list(part.parameters())} for part in model.children()]

    def plain() -> torch.optim.AdamW:
        return torch.optim.AdamW(
            groups(theirs), lr=LR, weight_decay=0.1, betas=(0.9, 0.98), eps=1e-8, fused=True
        )

    found, wanted = build_optimizer(compose(given), groups(ours)), plain()
    assert isinstance(found, AdamW)
    for step in range(12):
        torch.manual_seed(step)
        for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
            a.grad = torch.randn_like(a)
            b.grad = a.grad.clone()
        if step in (2, 5):
            ours[0].bias.grad = theirs[0].bias.grad = None
        if step == 7:
            found.load_state_dict(copy.deepcopy(found.state_dict()))
        if step == 9:  # each may go on from what the other has saved
            saved = copy.deepcopy(found.state_dict())
            wanted = plain()
            wanted.load_state_dict(saved)
        if step > 9:
            for model in (ours, theirs):
                model[1].zero_grad()
        found.step()
        wanted.step()
        for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
            assert torch.equal(a, b), step
            assert found.state[a]["step"] == wanted.state[b]["step"]


@pytest.mark.parametrize("more", ["+optimizer.amsgrad=true", "optimizer.fused=false"])
def test_other_kinds_of_adamw_are_torchs(more: str) -> None:
    parameters = list(models(1)[0].parameters())
    assert type(build_optimizer(compose([more]), parameters)) is torch.optim.AdamW
