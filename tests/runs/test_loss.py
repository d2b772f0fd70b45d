"""The loss that leaves out logits nobody asked for, and the one that never holds all of them."""

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from coefdyn.model.model import NextTokenHead
from coefdyn.runs import learner as module
from coefdyn.runs import loss as chunked
from coefdyn.runs.loss import summed_cross_entropy
from coefdyn.tasks.task import IGNORE
from tests.runs.runs import run_smoke


@pytest.mark.parametrize("size", [3, 1000])
def test_the_chunked_loss_is_the_loss(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    monkeypatch.setattr(chunked, "CHUNK_LOGITS", size * 11)
    x = torch.randn(2, 7, 5, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(11, 5, dtype=torch.float64, requires_grad=True)
    targets = torch.randint(11, (2, 7))
    targets[0, :3] = IGNORE
    ours = summed_cross_entropy(x, weight, targets) * 0.3
    plain = F.cross_entropy((x @ weight.mT).flatten(0, 1), targets.flatten(), reduction="sum",
                            ignore_index=IGNORE) * 0.3  # fmt: skip
    # The sum is kept in float32.
    torch.testing.assert_close(ours.double(), plain, rtol=1e-6, atol=1e-6)
    found = torch.autograd.grad(ours, (x, weight))
    wanted = torch.autograd.grad(plain, (x, weight))
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("width", [16, pytest.param(768, marks=pytest.mark.slow)])
def test_the_chunked_loss_takes_a_quarter_of_the_memory(width: int) -> None:
    """Of the paper's batch, its gradients included."""
    from coefdyn.benchmarks.measure import peak_megabytes

    x = torch.randn(8, 1024, width, requires_grad=True)
    weight = torch.randn(50257, width, requires_grad=True)
    targets = torch.randint(50257, (8, 1024))

    def ours() -> object:
        return torch.autograd.grad(summed_cross_entropy(x, weight, targets), (x, weight))

    peak, whole = peak_megabytes(ours), 4 * 8 * 1024 * 50257 / 2**20  # the logits alone
    print(f"width {width}: {peak:.0f} MB, {peak / whole:.3f} of the logits")
    assert peak < whole / 4


def test_logits_without_a_target_are_left_out_where_they_are_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows: list[int] = []

    def counted(self: NextTokenHead, x: torch.Tensor) -> torch.Tensor:
        if self.training:
            rows.append(x[..., 0].numel())
        return nn.Linear.forward(self, x)

    monkeypatch.setattr(NextTokenHead, "forward", counted)
    whole = run_smoke(tmp_path / "whole", "task=memorization").metrics
    before = max(rows)
    monkeypatch.setattr(module, "MANY", 0)
    rows.clear()
    part = run_smoke(tmp_path / "part", "task=memorization").metrics
    assert max(rows) * 2 == before  # every second token is a value
    # What is beyond every limit is never held as a whole; tests go through the head in chunks.
    monkeypatch.setattr(module, "LARGEST", 0)
    monkeypatch.setattr(module, "CHUNK_LOGITS", 3 * 17)
    rows.clear()
    chunks = run_smoke(tmp_path / "chunks", "task=memorization").metrics
    assert rows == [16]  # one sequence, tried before training
    for name in ("train/loss", "test/loss", "test/accuracy", "test/accuracy_macro"):
        assert part[name] == pytest.approx(whole[name], rel=1e-4)
        assert chunks[name] == pytest.approx(whole[name], rel=1e-4)
