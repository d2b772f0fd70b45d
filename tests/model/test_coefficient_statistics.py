"""The statistics of coefficients against plain counting, and on coefficients made by hand."""

import itertools
import math
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from coefdyn.config.build import build_model
from coefdyn.config.compose import compose
from coefdyn.mixer.stream import Coefficients
from coefdyn.model import coefficient_statistics as coefficients
from coefdyn.model.coefficient_statistics import coefficient_statistics
from coefdyn.model.model import SequenceModel, blocks_of

LENGTH = 9
CHOICES = [
    ["model=softmax_attention"],
    ["model=softmax_attention", "model/readout=relu"],
    ["model=softmax_attention", "model/readout=identity"],
    ["model=mlstm"],
    ["model=linear_attention", "model/readout=kernel_relu"],
]


def model_and_tokens(choice: list[str]) -> tuple[SequenceModel, Tensor]:
    sizes = ["model.max_length=9", "model.vocab_size=5", "model.init=normal"]
    model = build_model(compose(["scale=smoke", *choice, *sizes]))
    with torch.no_grad():  # large weights: coefficients near zero and near one occur
        for block in blocks_of(model):
            block.mixer.project.weight.mul_(60)
    return model, torch.randint(5, (6, LENGTH))


@pytest.mark.parametrize("choice", CHOICES, ids=" ".join)
def test_statistics_equal_counting_one_by_one(choice: list[str]) -> None:
    model, tokens = model_and_tokens(choice)
    found = coefficient_statistics(model, tokens)
    x = model.embed(tokens)
    total = {"near_zero": 0, "near_one": 0, "near_zero_raw": 0, "near_one_raw": 0}
    count, most, layer_one = 0, 0, [0.0] * LENGTH
    for layer, block in enumerate(blocks_of(model)):
        alpha, eta = block.mixer.coefficients(block.norm(x))
        for b, h, i in itertools.product(range(6), range(2), range(LENGTH)):
            zeros = 0
            for j in range(i + 1):
                raw = alpha[b, h, i, j].item()
                weight = raw / eta[b, h, i].item()
                total["near_zero"] += abs(weight) <= 1e-3
                total["near_one"] += 0.9 <= weight <= 1
                total["near_zero_raw"] += abs(raw) <= 1e-3
                total["near_one_raw"] += 0.9 <= raw <= 1
                zeros += abs(raw) <= 1e-6
                count += 1
            most = max(most, zeros)
            layer_one[i] += zeros / 6 * (layer == 0 and h == 0)
        x = block(x)
    for name, number in total.items():
        assert found[name] == number / count
    assert found["near_one_raw"] + found["near_zero_raw"] > 0
    assert found["most_zeros"] == most
    zeros_per_index = found["per_head"]["zeros_per_index"]
    assert zeros_per_index[0][0] == [round(share, 4) for share in layer_one]  # records stay small
    over_all = torch.tensor(zeros_per_index).mean((0, 1)).tolist()
    assert found["zeros_per_index"] == pytest.approx(over_all, abs=1e-4)
    assert found["zeros_per_index"] == [round(share, 4) for share in found["zeros_per_index"]]
    near_zero = torch.tensor(found["per_head"]["near_zero"])
    assert near_zero.shape == (2, 2)
    assert near_zero.mean().item() == pytest.approx(found["near_zero"])
    if total["near_zero"]:
        assert found["ratio"] == total["near_one"] / total["near_zero"]
    else:
        assert found["ratio"] is None


def test_all_zero_rows_are_counted_as_guarded() -> None:
    model, tokens = model_and_tokens(["model/readout=relu"])
    first, _ = blocks_of(model)
    alpha, _ = first.mixer.coefficients(first.norm(model.embed(tokens)))
    share = (alpha.sum(-1) == 0).double().mean((0, 2))
    assert share.max() > 0
    found = coefficient_statistics(model, tokens)
    per_head = found["per_head"]["guarded_rows"]
    assert per_head[0] == pytest.approx(share.tolist())
    assert found["guarded_rows"] == pytest.approx(torch.tensor(per_head).mean().item())
    plain = coefficient_statistics(*model_and_tokens(["model/readout=exp"]))
    assert plain["guarded_rows"] == 0


def hand_made(
    monkeypatch: pytest.MonkeyPatch, alpha: Tensor, eta: Tensor, guarded: Tensor | None = None
) -> dict[str, Any]:
    """The statistics of one layer with these coefficients, whatever the model computes."""
    model, _ = model_and_tokens(["model=softmax_attention"])
    batch, _, length, _ = alpha.shape
    rows = torch.zeros_like(eta, dtype=torch.bool) if guarded is None else guarded

    def layers(_: SequenceModel, tokens: Tensor) -> Iterator[Coefficients]:
        chosen = tokens[:, 0]  # which of the sequences
        yield Coefficients(alpha[chosen], eta[chosen], rows[chosen])

    monkeypatch.setattr(coefficients, "layers_of", layers)
    monkeypatch.setattr(coefficients, "_costly", lambda *_, **__: {})
    return coefficient_statistics(model, torch.arange(batch)[:, None].expand(batch, length))


def lower(rows: list[list[float]]) -> Tensor:
    """One head of one sequence, from the rows up to the diagonal; zero above it."""
    filled = [[*row, *[0.0] * (len(rows) - len(row))] for row in rows]
    return torch.tensor(filled, dtype=torch.float64)[None, None]


def above(x: float) -> float:
    return math.nextafter(x, math.inf)


def below(x: float) -> float:
    return math.nextafter(x, -math.inf)


def test_ends_of_the_intervals_belong_to_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """|x| <= 1e-3, 0.9 <= x <= 1 and |x| <= 1e-6, each value next to an end as well."""
    alpha = lower([
        [1e-3],
        [-1e-3, above(1e-3)],
        [0.9, below(0.9), 1.0],
        [above(1.0), -0.95, 1e-6, -1e-6],
        [above(1e-6), -above(1e-6), 0.0, 0.5, -above(1e-3)],
    ])  # fmt: skip
    found = hand_made(monkeypatch, alpha, torch.ones(1, 1, 5, dtype=torch.float64))
    near_zero, near_one = 7, 2  # of 15
    for suffix in ("", "_raw"):
        assert found[f"near_zero{suffix}"] == near_zero / 15
        assert found[f"near_one{suffix}"] == near_one / 15
        assert found[f"ratio{suffix}"] == near_one / near_zero
    assert found["zeros_per_index"] == [0, 0, 0, 2, 1]
    assert found["most_zeros"] == 2
    assert found["sequences"] == 1
    assert found["guarded_rows"] == 0


def test_alpha_is_divided_by_eta_for_all_but_the_raw_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """eta = 2 and -0.5: 2e-3 becomes 1e-3 and 1.8 becomes 0.9; -0.5 becomes 1 and 0.5 does not."""
    alpha = lower([[2e-3], [1.8, 0.95], [-0.5, 0.5, 4e-4]])
    eta = torch.tensor([[[2.0, 2.0, -0.5]]], dtype=torch.float64)
    found = hand_made(monkeypatch, alpha, eta)
    assert (found["near_zero"], found["near_one"]) == (2 / 6, 2 / 6)
    assert (found["near_zero_raw"], found["near_one_raw"]) == (1 / 6, 1 / 6)
    assert (found["ratio"], found["ratio_raw"]) == (1, 1)
    assert found["most_zeros"] == 0


def test_an_infinite_eta_makes_a_row_near_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    eta = torch.tensor([[[math.inf, 1.0]]], dtype=torch.float64)
    guarded = torch.tensor([[[True, False]]])
    found = hand_made(monkeypatch, lower([[0.95], [0.95, 0.5]]), eta, guarded)
    assert (found["near_zero"], found["near_one"]) == (1 / 3, 1 / 3)
    assert (found["near_zero_raw"], found["near_one_raw"]) == (0, 2 / 3)
    assert found["ratio_raw"] is None, "nothing raw is near zero"
    assert found["guarded_rows"] == 1 / 2


def test_heads_are_kept_apart_and_sequences_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    first = torch.cat([lower([[0], [0, 0]]), lower([[0], [1, 1]])], dim=1)
    second = torch.cat([lower([[1], [1, 0]]), lower([[1], [1, 1]])], dim=1)
    alpha = torch.cat([first, second])
    found = hand_made(monkeypatch, alpha, torch.ones(2, 2, 2, dtype=torch.float64))
    heads = found["per_head"]
    assert heads["near_zero"] == [[4 / 6, 1 / 6]]
    assert heads["near_one"] == [[2 / 6, 5 / 6]]
    assert heads["ratio"] == [[1 / 2, 5]]
    assert heads["zeros_per_index"] == [[[0.5, 1.5], [0.5, 0]]]
    assert heads["most_zeros"] == [[2, 1]]
    assert (found["near_zero"], found["near_one"], found["ratio"]) == (5 / 12, 7 / 12, 7 / 5)
    assert found["zeros_per_index"] == [0.5, 0.75]  # mean over the heads
    assert found["most_zeros"] == 2
    assert found["sequences"] == 2


@pytest.mark.parametrize("length", [63, 64, 65, 130])
def test_rows_are_counted_alike_wherever_blocks_of_them_end(
    length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blocks have 64 rows: one short of one, one, one more, and three."""
    assert coefficients.BLOCK_ROWS == 64
    levels = torch.tensor([0.0, 5e-7, 5e-4, 0.5, 0.95, 1.5], dtype=torch.float64)
    alpha = levels[torch.randint(6, (3, 2, length, length))].tril()
    seen = torch.ones(length, length, dtype=torch.bool).tril()
    # 0.95 stays near one for eta = 1 alone, 0.5 becomes it for 0.5 and 1.5 for 1.6.
    eta = torch.tensor([0.5, 1.0, 1.6], dtype=torch.float64)[torch.randint(3, (3, 2, length))]
    found = hand_made(monkeypatch, alpha, eta)
    kept = (alpha / eta.unsqueeze(-1))[:, :, seen]
    assert kept.shape[-1] == length * (length + 1) // 2
    assert found["near_zero"] == (kept <= 1e-3).double().mean()
    assert found["near_one"] == ((kept >= 0.9) & (kept <= 1)).double().mean()
    assert found["near_one_raw"] == (alpha[:, :, seen] == 0.95).double().mean()
    zeros = ((alpha <= 1e-6) & seen).sum(-1)
    assert found["most_zeros"] == zeros.max()
    per_index = zeros.double().mean(0).tolist()
    assert found["per_head"]["zeros_per_index"][0] == [
        pytest.approx(x, abs=1e-4) for x in per_index
    ]
    for name, value in (("BLOCK_ROWS", 7), ("SLICE_ELEMENTS", 1)):
        with monkeypatch.context() as patch:
            patch.setattr(coefficients, name, value)
            assert hand_made(monkeypatch, alpha, eta) == found, name


def test_slices_of_the_batch_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Six sequences in slices of one, of four and two, and whole."""
    model, tokens = model_and_tokens(["model/readout=relu"])
    whole = coefficient_statistics(model, tokens)
    for size in (1, 4):
        monkeypatch.setattr(coefficients, "SLICE_ELEMENTS", size * 2 * LENGTH**2)
        assert coefficient_statistics(model, tokens) == whole


def test_entropy_and_what_is_far_below_uniform(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that are uniform, of one key alone, and of two of four keys."""
    uniform = lower([[1.0], [1.0, 1.0], [1.0] * 3, [1.0] * 4])
    eta = torch.tensor([[[1.0, 2.0, 3.0, 4.0]]], dtype=torch.float64)
    found = hand_made(monkeypatch, uniform, eta)
    assert found["entropy"] == pytest.approx(1.0)
    assert found["near_zero_relative"] == 0
    alone = lower([[1.0], [0.0, 1.0], [0.0, 0.0, 1.0], [1.0, 0.0, 0.0, 0.0]])
    found = hand_made(monkeypatch, alone, torch.ones_like(eta))
    assert found["entropy"] == pytest.approx(0.0)
    assert found["near_zero_relative"] == 6 / 10
    assert found["per_head"]["entropy"] == [[pytest.approx(0.0)]]
    # 1/40 is a tenth of a quarter: counted; a little more is not, and 1e-3 would count neither.
    border = lower([[1.0], [0.5, 0.5], [1 / 3] * 3, [0.025, 0.0251, 0.5, 0.4499]])
    found = hand_made(monkeypatch, border, torch.ones_like(eta))
    assert found["near_zero_relative"] == 1 / 10
    assert found["near_zero"] == 0


def test_the_variance_of_scores_and_the_rank_are_of_the_layers() -> None:
    """Of q.k/sqrt(n) as computed by hand; a design that only averages has rank about 1."""
    model, tokens = model_and_tokens(["model=softmax_attention"])
    found = coefficient_statistics(model, tokens)
    x, variances = model.embed(tokens[:8]), []
    for block in model.blocks:
        given = block.mixer.projected(block.norm(x))
        scores = (given.q @ given.k.mT).double() / given.q.shape[-1] ** 0.5
        below = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
        variances.append(scores[..., below].var().item())
        x = block(x)
    assert found["score_variance"] == pytest.approx(sum(variances) / 2, rel=1e-4)
    assert 1 <= found["effective_rank"] <= tokens.shape[1]
    brief = coefficients.brief_statistics(model, tokens[:8])
    assert set(brief) == set(coefficients.FOLLOWED)
    assert brief["score_variance"] == pytest.approx(found["score_variance"])
