"""The statistics of coefficients against plain counting."""

import itertools

import pytest
import torch
from torch import Tensor

from coefdyn.config.build import build_model
from coefdyn.config.compose import compose
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
    assert found["per_head"]["zeros_per_index"][0][0] == pytest.approx(layer_one, abs=1e-4)
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
    assert found["per_head"]["guarded_rows"][0] == pytest.approx(share.tolist())
    plain = coefficient_statistics(*model_and_tokens(["model/readout=exp"]))
    assert plain["guarded_rows"] == 0


def test_slices_of_the_batch_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    model, tokens = model_and_tokens(["model/readout=relu"])
    whole = coefficient_statistics(model, tokens)
    monkeypatch.setattr(coefficients, "SLICE_ELEMENTS", 4 * 2 * LENGTH**2)
    assert coefficient_statistics(model, tokens) == whole
