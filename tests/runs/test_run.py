"""A run and its record: what is trained, how, what is kept, and what is not trained twice."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.optim import Optimizer

from coefdyn.config.build import build_model, build_task
from coefdyn.config.compose import compose
from coefdyn.config.plugins import options
from coefdyn.runs import setup
from coefdyn.runs.checkpoint import KeepProgress
from coefdyn.runs.loop import Training
from coefdyn.runs.record import processor, read_record
from coefdyn.runs.run import run_one
from coefdyn.tasks.task import IGNORE
from tests.designs import ARCHITECTURES
from tests.repeat import rounds_as_here
from tests.runs.runs import folder, history, run_smoke, smoke

MAD = [name for name in options("task") if name != "wikitext103"]
# Every preset and every task; tests/test_golden.py has the losses of all pairs.
PAIRS = [(model, MAD[i % len(MAD)]) for i, model in enumerate(ARCHITECTURES)]


@pytest.mark.parametrize(("model", "task"), PAIRS)
def test_every_preset_and_every_task_train(model: str, task: str, tmp_path: Path) -> None:
    record = run_smoke(tmp_path, f"model={model}", f"task={task}", "trainer.max_epochs=3")
    rows = history(tmp_path, record)
    assert record.status == "finished"
    assert float(rows[-1]["train/loss"]) < float(rows[0]["train/loss"])
    assert [int(row["epoch"]) for row in rows] == [1, 2, 3]


# One of each kind: no A_t, a decay, a Householder, units.
KINDS = ["softmax_attention", "gla", "gated_deltanet", "mlstm"]


@pytest.mark.parametrize("model", KINDS)
def test_bf16_mixed_trains_close_to_fp32(model: str, tmp_path: Path) -> None:
    full = run_smoke(tmp_path, f"model={model}")
    mixed = run_smoke(tmp_path, f"model={model}", "trainer.precision=bf16-mixed")
    assert full.run_id != mixed.run_id
    losses = full.metrics["test/loss"], mixed.metrics["test/loss"]
    assert losses[0] != losses[1]
    assert losses[0] == pytest.approx(losses[1], rel=0.02)


def test_a_kernel_trains_the_same_run(tmp_path: Path) -> None:
    own = run_smoke(tmp_path / "own")
    kernel = run_smoke(tmp_path / "kernel", "model.backend=sdpa")
    assert own.run_id == kernel.run_id
    assert set(own.backend) == {"compiled"}
    assert set(kernel.backend) == {"sdpa"}
    assert kernel.metrics["test/loss"] == pytest.approx(own.metrics["test/loss"], rel=1e-4)


def test_metrics_are_those_of_the_last_weights_on_the_whole_test_set(tmp_path: Path) -> None:
    config = smoke(tmp_path, "task.num_test=50", "trainer.max_epochs=4")  # the last batch is short
    record = run_one(config)
    model = build_model(config)
    state = torch.load(folder(tmp_path, record) / "last.ckpt", weights_only=True)["state_dict"]
    model.load_state_dict({k.removeprefix("model."): v for k, v in state.items()})
    test = build_task(config).generate("test", 0)
    with torch.no_grad():
        logits = model(torch.from_numpy(test.inputs))
    scored = test.targets != IGNORE
    wanted, guess = test.targets[scored], logits.argmax(-1).numpy()[scored]
    right = wanted == guess
    macro = np.mean([right[wanted == token].mean() for token in np.unique(wanted)])
    loss = -logits.log_softmax(-1).numpy()[scored][np.arange(len(wanted)), wanted].mean()
    assert record.metrics["test/accuracy"] == pytest.approx(right.mean(), rel=1e-12)
    assert record.metrics["test/accuracy_macro"] == pytest.approx(macro, rel=1e-12)
    assert record.metrics["test/loss"] == pytest.approx(loss, rel=1e-5)
    assert record.metrics["test/accuracy_best"] >= record.metrics["test/accuracy"]


def test_the_record_explains_the_run(tmp_path: Path) -> None:
    config = smoke(tmp_path, "model=gla", "task=fuzzy_recall")
    record = run_one(config)
    assert record == read_record(folder(tmp_path, record) / "record.json")
    assert record.choices["model/evolution"] == "diagonal_gla"
    assert record.config["optimizer"]["betas"] == [0.9, 0.98]
    assert record.config["task"]["k_motif_size"] == 2
    assert record.backend == ["compiled", "compiled"]
    assert record.parameters == sum(p.numel() for p in build_model(config).parameters())
    assert (record.epochs, record.steps) == (2, 4)
    assert record.chance == 0.25
    assert set(record.versions) >= {"python", "torch", "lightning"}
    assert set(record.device) == {"type", "name", "kind", "products", "threads"}
    assert record.device["kind"] == processor()
    other = replace(record, device=record.device | {"products": "of another library"})
    assert rounds_as_here(record)
    assert not rounds_as_here(other)
    assert set(record.git) == {"commit", "dirty"}
    assert set(record.data) == {"train", "test"}
    assert min(record.seconds.values()) > 0
    assert {"near_zero", "near_zero_raw", "near_one", "zeros_per_index", "guarded_rows"} < set(
        record.coefficients
    )


def test_the_same_run_gives_the_same_bits_and_another_seed_others(tmp_path: Path) -> None:
    first, again, other = (
        run_smoke(tmp_path / name, f"seed={seed}") for name, seed in (("a", 1), ("b", 1), ("c", 2))
    )
    same = ("run_id", "metrics", "coefficients", "data")
    assert [getattr(first, key) for key in same] == [getattr(again, key) for key in same]
    assert first.run_id != other.run_id
    assert first.metrics["test/loss"] != other.metrics["test/loss"]
    assert first.data != other.data
    fixed = run_smoke(tmp_path / "d", "seed=2", "task.seed=1")
    assert fixed.data == first.data


def test_learning_rate_follows_the_cosine_at_every_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    used: list[float] = []
    step = Training.training_step

    def watched(self: Training, batch: Any, index: int) -> Tensor:
        used.append(self.optimizers().param_groups[0]["lr"])  # type: ignore[union-attr]
        return step(self, batch, index)

    monkeypatch.setattr(Training, "training_step", watched)
    run_smoke(tmp_path, "optimizer.lr=0.01", "trainer.max_epochs=4")
    cosine = [0.01 * 0.5 * (1 + math.cos(math.pi * t / 8)) for t in range(8)]
    assert used == pytest.approx(cosine, rel=1e-12)
    used.clear()
    run_smoke(tmp_path, "optimizer.lr=0.01", "trainer.max_epochs=4", "trainer.warmup_steps=4")
    rise = [0.0025, 0.005, 0.0075, 0.01]
    fall = [0.01 * 0.5 * (1 + math.cos(math.pi * t / 4)) for t in range(4)]
    assert used == pytest.approx(rise + fall, rel=1e-12)


@pytest.mark.parametrize("precision", ["fp32", "bf16-mixed"])
def test_gradients_are_clipped(
    precision: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    norms: list[float] = []

    clip = Training.configure_gradient_clipping

    def clipped(self: Training, optimizer: Optimizer, *arguments: Any, **named: Any) -> None:
        clip(self, optimizer, *arguments, **named)
        grads = [p.grad.flatten() for p in self.model.parameters() if p.grad is not None]
        norms.append(torch.cat(grads).norm().item())

    monkeypatch.setattr(Training, "configure_gradient_clipping", clipped)
    run_smoke(tmp_path, "trainer.clip=0.01", f"trainer.precision={precision}")
    assert norms == pytest.approx([0.01] * 4, rel=1e-3)
    norms.clear()
    run_smoke(tmp_path, f"trainer.precision={precision}")
    assert min(norms) > 0.01


def test_a_recorded_run_is_not_trained_again_unless_forced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = run_smoke(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(Training, "training_step", None)
        assert run_smoke(tmp_path) == first
        assert run_smoke(tmp_path, "model.backend=quadratic", "logger=csv") == first
    forced = run_smoke(tmp_path, "force=true")
    assert forced.seconds != first.seconds
    assert forced.metrics == first.metrics
    assert not (folder(tmp_path, first) / "record.old.json").exists()


def test_a_forced_run_that_fails_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = run_smoke(tmp_path)

    def broken(*_: Any) -> None:
        raise RuntimeError("no space left")

    monkeypatch.setattr(KeepProgress, "on_train_epoch_end", broken)
    with pytest.raises(RuntimeError, match="no space left"):
        run_smoke(tmp_path, "force=true")
    assert read_record(folder(tmp_path, first) / "record.old.json") == first
    assert "no space left" in (folder(tmp_path, first) / "error.txt").read_text()


def test_a_diverged_run_keeps_its_last_finite_metrics(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    finite = run_smoke(tmp_path / "finite", "trainer.max_epochs=4")
    step = Training.training_step

    def diverging(self: Training, batch: Any, index: int) -> Tensor:
        loss = step(self, batch, index)
        if self.global_step == 6:  # the seventh step, in the fourth epoch
            self.losses[-1] = torch.tensor([math.nan])
        return loss

    monkeypatch.setattr(Training, "training_step", diverging)
    record = run_smoke(tmp_path, "trainer.max_epochs=4")
    rows = history(tmp_path / "finite", finite)
    assert record.status == "diverged"
    assert record.diverged_at_step == 7
    assert record.metrics["test/loss"] == float(rows[2]["test/loss"])
    assert record.coefficients is None
    assert "at step 7" in caplog.text


@pytest.mark.parametrize("model", KINDS)
def test_an_absurd_learning_rate_diverges_and_the_accuracy_is_chance(
    model: str, tmp_path: Path
) -> None:
    record = run_smoke(tmp_path, f"model={model}", "optimizer.lr=1e3")
    assert record.status == "diverged"
    assert record.diverged_at_step == 2
    assert record.metrics["test/accuracy"] == record.chance


@pytest.mark.slow
def test_wandb_offline_writes_a_run(tmp_path: Path) -> None:
    record = run_smoke(tmp_path, "logger=wandb")
    (offline,) = (folder(tmp_path, record) / "wandb").glob("offline-run-*")
    (log,) = offline.glob("run-*.wandb")
    assert log.stat().st_size > 0
    assert record.run_id in log.name


def test_small_models_get_one_thread_and_large_ones_what_torch_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless a number is given. Tokens of a batch times parameters decide."""
    monkeypatch.setattr(setup, "DEFAULT_THREADS", 2)
    few = ["task.num_train=8", "task.num_test=2", f"paths.results={tmp_path}"]
    for given, threads in (
        (["scale=smoke"], 1),
        (["scale=paper"], 2),
        (["scale=paper", "trainer.batch_size=1"], 1),
        (["scale=paper", "trainer.devices.threads=1"], 1),
        (["scale=smoke", "trainer.devices.threads=2"], 2),
    ):
        setup.set_up(compose(["task=noisy_recall", *few, *given]))
        assert torch.get_num_threads() == threads, given
