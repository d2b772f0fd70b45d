"""What the paper leaves open, as switches: each does what it says, and its default nothing."""

import math
from pathlib import Path

import pytest
import torch

from coefdyn.config.build import build_model
from coefdyn.config.compose import compose
from coefdyn.mixer.slots.normalization import Rows, RowSum
from coefdyn.mixer.slots.preprocess import ShortConv
from coefdyn.model.model import mixers_of
from coefdyn.runs.progress import constant, cosine
from tests.runs.runs import run_smoke

SPLITS = [4, 4, 6, 4]  # q, k, v, z


@pytest.mark.parametrize(
    "switch",
    ["trainer.schedule=cosine", "model.preprocess.applies_to=qkv", "model.position.std=0.02",
     "model.normalization.added=0.0"],
)  # fmt: skip
def test_the_present_value_of_a_switch_is_no_other_run(switch: str) -> None:
    plain = ["model/preprocess=short_conv", "model/position=learned"]
    assert compose([*plain, switch]).run_id == compose(plain).run_id


@pytest.mark.parametrize(
    "switch",
    ["trainer.schedule=constant", "model.preprocess.applies_to=qk", "model.position.std=0.5",
     "model.normalization.added=1e-3"],
)  # fmt: skip
def test_another_value_is(switch: str) -> None:
    plain = ["model/preprocess=short_conv", "model/position=learned"]
    assert compose([*plain, switch]).run_id != compose(plain).run_id


def test_a_constant_schedule_stays_at_its_peak(tmp_path: Path) -> None:
    assert [constant(10, 0, step) for step in (0, 5, 9)] == [1, 1, 1]
    assert [constant(10, 4, step) for step in range(6)] == [0.25, 0.5, 0.75, 1, 1, 1]
    assert [cosine(10, 4, step) for step in range(4)] == [0.25, 0.5, 0.75, 1]
    more = ["trainer.schedule=constant", "optimizer.lr=0.004", "trainer.max_epochs=3"]
    assert run_smoke(tmp_path, *more).history["lr"] == [0.004] * 3


@pytest.mark.parametrize("splits", [SPLITS, SPLITS[:3]])
def test_values_can_be_left_out_of_the_convolution(splits: list[int]) -> None:
    """Queries, keys and directions as before; also token by token."""
    torch.manual_seed(0)
    whole = ShortConv(sum(splits), 4)
    part = ShortConv(sum(splits), 4, applies_to="qk")
    part.load_state_dict(whole.state_dict())
    part.settle(splits)
    assert len(part.kernel) == sum(splits) - splits[2]
    x = torch.randn(2, 7, sum(splits))
    found, wanted = (y.split(splits, dim=-1) for y in (part(x), whole(x)))
    for place, (ours, theirs, given) in enumerate(
        zip(found, wanted, x.split(splits, dim=-1), strict=True)
    ):
        torch.testing.assert_close(ours, given if place == 2 else theirs)
    past, steps = None, []
    for t in range(7):
        step = x[:, t : t + 1]
        before = x.new_zeros(2, 3, sum(splits)) if past is None else past
        steps.append(part(step, before))
        past = part.remember(step, past)
    torch.testing.assert_close(torch.cat(steps, dim=1), part(x))


def test_a_model_without_a_convolution_of_values_has_fewer_parameters() -> None:
    given = ["model=gla", "model/preprocess=short_conv", "scale=smoke"]
    both = [build_model(compose([*given, f"model.preprocess.applies_to={which}"]))
            for which in ("qkv", "qk")]  # fmt: skip
    sizes = [len(mixers_of(model)[0].preprocess.kernel) for model in both]
    assert sizes[0] - sizes[1] == 16  # d_value


def test_positions_start_at_the_size_asked_for() -> None:
    tables = [
        build_model(compose(["scale=lite", f"model.position.std={std}"])).position.table.weight
        for std in (0.02, 1.0)
    ]
    torch.testing.assert_close(tables[1], 50 * tables[0])
    assert tables[1].std().item() == pytest.approx(1.0, rel=0.1)


def test_a_constant_can_be_added_to_row_sums() -> None:
    """Of nonnegative readouts; a row of zeros then needs no rule, and rows are cones."""
    total = torch.tensor([[[0.0, 2.0]]])
    x = torch.zeros(1, 2, 3)
    plain, added = RowSum(1e-6), RowSum(1e-6, added=0.5)
    assert added(x, Rows(total, None, True, 0)).tolist() == [[[0.5, 2.5]]]
    in_units = added(x, Rows(total, torch.ones(1, 1, 2), True, 0)).flatten().tolist()
    assert in_units == pytest.approx([0.5 / math.e, 2 + 0.5 / math.e])
    assert added.guarded(Rows(total, None, True, 0)) is None
    assert plain.guarded(Rows(total, None, True, 0)).tolist() == [[[True, False]]]
    assert (plain.sums_to_one, added.sums_to_one) == (True, False)
    signed = Rows(torch.tensor([[[-3.0, 2.0]]]), None, False, 0)
    assert added(x, signed).tolist() == plain(x, signed).tolist()
    for backend in ("compiled", "quadratic", "definition"):
        given = ["model=relu_attention", "scale=smoke", "model.normalization.added=0.1"]
        torch.manual_seed(0)
        mixer = mixers_of(build_model(compose([*given, f"model.backend={backend}"])))[0]
        y = mixer(torch.randn(2, 9, 16, generator=torch.Generator().manual_seed(1)))
        if backend == "compiled":
            first = y
        torch.testing.assert_close(y, first, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ("trainer.schedule=linear", "choose from cosine, constant"),
        ("model.position.std=0.0", "std > 0"),
        ("model.normalization.added=-1.0", "added >= 0"),
    ],
)
def test_wrong_values_are_named(wrong: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(Exception, match=words):
        run_smoke(tmp_path, wrong)
    with pytest.raises(Exception, match="choose from qkv, qk, z"):
        run_smoke(tmp_path, "model/preprocess=short_conv", "model.preprocess.applies_to=v")


def test_a_goal_is_reached_on_the_validation_set(tmp_path: Path) -> None:
    """Which is looked at only where there is a goal; the test set decides nothing."""
    plain = run_smoke(tmp_path, "trainer.max_epochs=2")
    assert not any(name.startswith("validation") for name in plain.history)
    goal = run_smoke(tmp_path, "trainer.max_epochs=2", "trainer.stop_at=0.01")
    assert goal.epochs == 1
    assert goal.history["validation/accuracy"][0] >= 0.01
    assert goal.history["test/loss"][0] != goal.history["validation/loss"][0]
