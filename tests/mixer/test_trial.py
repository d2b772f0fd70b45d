"""A kernel is used only after a trial at the run's own shape: of its values, gradients and time."""

import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from coefdyn.config.build import build_mixer
from coefdyn.config.compose import compose
from coefdyn.errors import ConfigError
from coefdyn.mixer.backends import ADAPTERS, choice, trial
from coefdyn.mixer.sequence_mixer import SequenceMixer
from coefdyn.runs import trials
from tests.runs.runs import run_smoke

KERNEL = ADAPTERS["sdpa"]  # stands for any: what it computes is replaced here
Attention = Callable[..., Tensor]


def right(q: Tensor, k: Tensor, v: Tensor, **_: Any) -> Tensor:
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, scale=1.0)


def slow(q: Tensor, k: Tensor, v: Tensor, **_: Any) -> Tensor:
    time.sleep(0.05)
    return right(q, k, v)


def failing(*_: Any, **__: Any) -> Tensor:
    raise RuntimeError("no kernel image\nfor this device")


def wrong(q: Tensor, k: Tensor, v: Tensor, **_: Any) -> Tensor:
    return 1.01 * right(q, k, v)


def nan_beyond_1024_blocks(q: Tensor, k: Tensor, v: Tensor, **_: Any) -> Tensor:
    blocks = q.shape[0] * q.shape[1]
    return right(q, k, v) if blocks <= 1024 else right(q, k, v) * torch.nan


class HalfGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad / 2


def gradient_off_by_half(q: Tensor, k: Tensor, v: Tensor, **_: Any) -> Tensor:
    return right(q, HalfGradient.apply(k), v)


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[Attention], SequenceMixer]:
    """A mixer of softmax attention whose kernel is replaced, and needs a trial on a CPU too."""
    monkeypatch.setattr(type(KERNEL), "needs_trial", lambda *_: True)
    monkeypatch.setattr(choice, "_pays", lambda *_: True)
    monkeypatch.setattr(trial, "KNOWN", {})
    monkeypatch.setattr(trials, "KNOWN", trial.KNOWN)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def replaced(attention: Attention) -> SequenceMixer:
        monkeypatch.setitem(KERNEL.__dict__, "call", attention)
        return build_mixer(compose(["model=softmax_attention", "scale=smoke"]))

    return replaced


REFUSED = [
    (failing, "it fails here: no kernel image for this device"),
    (wrong, "its output is off by 0.01 at batch 2, and 0.001 is allowed"),
    (gradient_off_by_half, "its gradient of x is off by 0."),
    (nan_beyond_1024_blocks, "its output is off by nan at batch 513"),
]


@pytest.mark.parametrize(("attention", "reason"), REFUSED)
def test_a_wrong_kernel_is_refused_with_the_reason(
    attention: Attention,
    reason: str,
    use: Callable[[Attention], SequenceMixer],
    caplog: pytest.LogCaptureFixture,
) -> None:
    mixer = use(attention)
    x = torch.randn(2, 9, mixer.d_model)
    mixer(x)
    assert mixer.form_used != KERNEL.name
    outcome = mixer.trials[KERNEL.name]
    assert outcome.wrong is not None
    assert outcome.wrong.startswith(reason)
    assert f"{KERNEL.name} is not used: {reason}" in caplog.text
    mixer.backend = KERNEL.name
    with pytest.raises(ValueError, match=r"^model\.backend=sdpa cannot be used: it.*; use auto$"):
        mixer(x)


def test_a_slow_kernel_is_refused_by_auto_and_taken_by_name(
    use: Callable[[Attention], SequenceMixer],
) -> None:
    mixer = use(slow)
    x = torch.randn(2, 9, mixer.d_model)
    mixer(x)
    outcome = mixer.trials[KERNEL.name]
    assert outcome.wrong is None
    assert outcome.slow is not None
    assert outcome.slow.endswith("of the time of our own form")
    assert mixer.form_used != KERNEL.name
    mixer.backend = KERNEL.name
    mixer(x)
    assert mixer.form_used == KERNEL.name


def test_a_right_kernel_is_tried_once_for_each_training_shape(
    use: Callable[[Attention], SequenceMixer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial, "SLOWER", 1e9)
    mixer, state = use(right), torch.get_rng_state()
    tried: list[tuple[int, ...]] = []
    compare = trial._compare

    def counted(*arguments: Any) -> str | None:
        tried.append((arguments[2], *arguments[1].shape[1:]))
        return compare(*arguments)

    monkeypatch.setattr(trial, "_compare", counted)
    x = torch.randn(2, 9, mixer.d_model, generator=torch.Generator().manual_seed(1))
    for _ in range(2):
        mixer(x)
    mixer(x[:1])  # the last batch of an epoch is no reason for another trial, nor is a test
    with torch.no_grad():
        mixer(x[:1, :5])
    assert mixer.form_used == KERNEL.name
    assert [batch for batch, *_ in tried] == [2, 513]
    mixer(x[:, :5])
    assert len(tried) == 4
    assert (torch.get_rng_state() == state).all()
    errors = mixer.trials[KERNEL.name].errors
    assert {"output", "gradient of x", "gradient of project.weight"} == errors.keys()
    assert max(error or 0.0 for error in errors.values()) < 1e-5


def test_other_batch_size_lies_beyond_1024_blocks() -> None:
    mixer = build_mixer(compose(["model=softmax_attention", "scale=smoke"]))
    for batch, length, heads in ((2, 9, 2), (64, 127, 16), (600, 64, 2)):
        subject = trial.Subject(
            mixer.design,
            mixer.projected,
            {},
            heads,
            (8, 8),
            (batch, length, 4),
            mixer.project.weight,
            None,
        )
        sizes = [size * heads * -(-length // 64) for size in subject.batches]
        assert min(sizes) <= 1024 < max(sizes)


def test_half_precision_allows_what_rounding_costs(
    use: Callable[[Attention], SequenceMixer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial, "SLOWER", 1e9)
    x = torch.randn(2, 9, use(right).d_model)
    for attention, fine in ((right, True), (lambda *a, **_: 1.1 * right(*a), False)):
        trial.KNOWN.clear()
        mixer = use(attention)
        with torch.autocast("cpu", torch.bfloat16):
            mixer(x)
        assert (mixer.trials[KERNEL.name].wrong is None) == fine
        assert (mixer.trials[KERNEL.name].errors["output"] or 0.0) > 1e-4


def test_outcomes_are_kept_in_a_file_and_the_record(
    use: Callable[[Attention], SequenceMixer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial, "SLOWER", 1e9)
    use(right)
    record = run_smoke(tmp_path, "model=softmax_attention", f"model.backend={KERNEL.name}")
    assert record.device["trials"][KERNEL.name]["wrong"] is None
    (key,) = trial.KNOWN
    for part in ("sdpa, Identity, ", " heads of 8 and 8, float32, cpu, torch "):
        assert part in key
    kept = dict(trial.KNOWN)
    trial.KNOWN.clear()
    trials.recall_trials()
    assert kept == trial.KNOWN
    for damage in ("", "[]", '{"x": {"no": 1}}'):
        trials.cache_file().write_text(damage)
        trial.KNOWN.clear()
        trials.recall_trials()
        assert not trial.KNOWN


@pytest.mark.parametrize(
    ("attention", "kind", "reason"),
    [*((attention, "wrong", reason.partition(" at batch")[0]) for attention, reason in REFUSED),
     (slow, "slow", "it takes ")],
)  # fmt: skip
def test_record_of_auto_says_why_a_kernel_was_refused(
    attention: Attention,
    kind: str,
    reason: str,
    use: Callable[[Attention], SequenceMixer],
    tmp_path: Path,
) -> None:
    use(attention)
    record = run_smoke(tmp_path, "model=softmax_attention")
    assert KERNEL.name not in record.backend
    assert record.device["trials"][KERNEL.name][kind].startswith(reason)


def test_refused_kernel_by_name_stops_a_run_before_it_writes(
    use: Callable[[Attention], SequenceMixer], tmp_path: Path
) -> None:
    use(wrong)
    with pytest.raises(ConfigError, match=r"^model\.backend=sdpa cannot be used: its output is of"):
        run_smoke(tmp_path / "new", "model=softmax_attention", f"model.backend={KERNEL.name}")
    assert not (tmp_path / "new").exists()


def test_loss_of_the_first_batch_is_compared_with_our_own_form(
    use: Callable[[Attention], SequenceMixer],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A kernel that passes its trial may still be wrong on what the model computes with."""
    monkeypatch.setattr(trial, "outcome_of", lambda *_: trial.Outcome(None, None, {}, 0.5))
    use(lambda q, k, v, **_: right(q, k, v) + 1)
    own = run_smoke(tmp_path / "own", "model=softmax_attention", "model.backend=quadratic")
    record = run_smoke(tmp_path / "auto", "model=softmax_attention")
    assert KERNEL.name not in record.backend
    assert record.device["trials"][KERNEL.name]["wrong"].startswith("the loss of the first batch")
    assert "sdpa is not used: the loss of the first batch is" in caplog.text
    assert record.metrics["test/loss"] == pytest.approx(own.metrics["test/loss"], rel=1e-3)
    with pytest.raises(ConfigError, match=r"^model\.backend=sdpa cannot be used: the loss of the"):
        run_smoke(tmp_path / "named", "model=softmax_attention", f"model.backend={KERNEL.name}")


def test_outcome_can_be_written_and_read() -> None:
    outcome = trial.Outcome("why", None, {"output": 0.1}, None)
    assert trial.Outcome(**asdict(outcome)) == outcome
