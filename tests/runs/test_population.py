"""Populations: every member as its own run."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from coefdyn.cli import main
from coefdyn.config.compose import Config
from coefdyn.errors import ConfigError
from coefdyn.runs.population.fusing import family, is_fused
from coefdyn.runs.population.stacked import Stack
from coefdyn.runs.population.training import train_population
from coefdyn.runs.record import Record, read_record
from coefdyn.runs.run import run_one
from tests.runs.populations import FUSED, grid, records, small
from tests.runs.runs import history

TABLE_1 = ["softmax_attention", "linear_attention", "normalized_attention", "gla", "mamba2",
           "deltanet", "gated_deltanet", "mlstm"]  # fmt: skip
NEWER = ["rope", "fox", "path_fox", "mamba3", "rwkv7", "gated_deltaproduct"]


def assert_same(ours: Record, solo: Record, rel: float) -> None:
    """But for times and sessions."""
    assert solo.population is None
    for name in ("run_id", "status", "diverged_at_step", "epochs", "steps", "chance",
                 "choices", "backend", "parameters", "data"):  # fmt: skip
        assert getattr(ours, name) == getattr(solo, name), name
    for name, value in solo.metrics.items():
        assert ours.metrics[name] == pytest.approx(value, rel=rel), name
    if solo.coefficients is None:
        assert ours.coefficients is None
    else:
        for name in ("near_zero", "near_one", "most_zeros", "guarded_rows"):
            assert ours.coefficients[name] == pytest.approx(solo.coefficients[name], rel=rel)


@pytest.mark.usefixtures("in_float64")
@pytest.mark.parametrize(
    ("model", "compared"),
    [
        ("mamba2", [2, 9]),
        *(pytest.param(model, range(10), marks=pytest.mark.slow) for model in TABLE_1),
        *(pytest.param(model, [2, 9], marks=pytest.mark.slow) for model in NEWER),
    ],
)
def test_every_member_equals_its_own_run(
    model: str, compared: Sequence[int], tmp_path: Path
) -> None:
    """Ten members, fifty steps in float64."""
    more = [f"model={model}", "trainer.max_epochs=5", "task.num_train=80", "trainer.batch_size=8",
            "trainer.clip=0.5", "trainer.warmup_steps=5",
            "trainer.test_every=5", "task.num_test=16"]  # fmt: skip
    together = records(train_population(grid(tmp_path / "together", *more, FUSED)))
    assert len(together) == 10
    alone = grid(tmp_path / "alone", *more)
    for i in compared:
        ours, solo = together[i], run_one(alone[i])
        assert solo.steps == 50
        assert ours.population == {"mode": "fused", "members": 10}
        assert_same(ours, solo, rel=1e-9)
        rows = zip(history(tmp_path / "together", ours), history(tmp_path / "alone", solo),
                   strict=True)  # fmt: skip
        for row, wanted in rows:
            assert row.keys() == wanted.keys()
            for name in wanted:
                if wanted[name]:
                    found = float(row[name])
                    assert found == pytest.approx(float(wanted[name]), rel=1e-9), name


@pytest.mark.usefixtures("in_float64")
def test_the_others_go_on_when_members_leave(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One diverges at step 10, one is good enough after an epoch; seeds differ too."""
    more = ["trainer.max_epochs=4", "task.num_train=48", "trainer.batch_size=8"]

    def make(place: str, *extra: str) -> list[Config]:
        rates = (1e-3, 2e-3)
        return grid(tmp_path / place, *more, *extra, lrs=rates, decays=(0.0,), seeds=(0, 1))

    name = "validation/accuracy"  # which is looked at where there is a goal
    solos = [run_one(config) for config in make("alone", "trainer.stop_at=2")]
    tests = [[float(r[name]) for r in history(tmp_path / "alone", s)] for s in solos]
    ranked = sorted(max(accuracies[:-1]) for accuracies in tests)
    stop = (ranked[-1] + ranked[-2]) / 2 if ranked[-1] > ranked[-2] else ranked[-1]
    early = f"trainer.stop_at={stop}"
    stopped = [run_one(config) for config in make("stopped", early)]
    assert 0 < sum(run.epochs < 4 for run in stopped) < len(stopped)

    losses, taken = Stack.losses, [0]

    def spoiled(self: Stack, *given: Any) -> Any:
        taken[0] += 1
        if taken[0] == 10:
            self.weights[3].data[:] = torch.nan
        return losses(self, *given)

    monkeypatch.setattr(Stack, "losses", spoiled)
    together = records(train_population(make("together", early, FUSED)))
    for ours, solo in zip(together[:-1], stopped[:-1], strict=True):
        assert_same(ours, solo, rel=1e-9)
    assert together[-1].status == "diverged"
    assert together[-1].diverged_at_step == 10
    assert together[-1].coefficients is None
    assert [ours.population["members"] for ours in together] == [4] * 4


def test_members_in_bfloat16_are_near_their_own_runs(tmp_path: Path) -> None:
    mixed = "trainer.precision=bf16-mixed"
    together = records(train_population(small(tmp_path / "together", mixed, "model=mamba2")))
    alone = run_one(small(tmp_path / "alone", mixed, "model=mamba2")[1])
    assert together[1].metrics["test/loss"] == pytest.approx(alone.metrics["test/loss"], rel=0.01)


def test_the_backend_of_members_is_what_the_stack_used(tmp_path: Path) -> None:
    wide = small(tmp_path / "fused", "model.n_state=32")
    for record in records(train_population(wide)):
        assert set(record.backend) == {"compiled"}
    alone = run_one(small(tmp_path / "alone", "model.n_state=32")[0])
    assert set(alone.backend) == {"sdpa"}


def test_auto_fuses_what_is_small(tmp_path: Path) -> None:
    for size, fused in ((8, True), (32, True), (64, False)):
        (config, *_) = small(tmp_path, f"trainer.batch_size={size}", mode="population.mode=auto")
        assert is_fused(config) == fused


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["population.mode=both"], "choose from sequential, fused, auto"),
        (["optimizer._target_=torch.optim.SGD", "~optimizer.betas", "~optimizer.eps"], "AdamW"),
        (["+optimizer.amsgrad=true"], "AdamW with lr"),
        (["logger=wandb"], "use logger=csv"),
        (["trainer.devices.recompute=true"], "are for single runs"),
        (["model.backend=sdpa"], "model.backend=sdpa is for single runs"),
    ],
)
def test_what_cannot_be_fused_says_why(tmp_path: Path, more: list[str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        train_population(small(tmp_path, *more))
    assert not list(tmp_path.iterdir())


def test_strangers_are_no_population(tmp_path: Path) -> None:
    configs = [*small(tmp_path), *small(tmp_path, "model=gla")]
    with pytest.raises(ConfigError, match="these differ in more"):
        train_population(configs)
    with pytest.raises(ConfigError, match="the same run twice"):
        train_population([configs[0], configs[0]])
    assert family(configs[0]) == family(configs[1]) != family(configs[-1])


def test_lists_on_the_command_line_are_a_population(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["scale=smoke", f"paths.results={tmp_path}", FUSED, "trainer.max_epochs=1"]
    lists = ["population.lr=[1e-3,2e-3]", "population.seed=[0,1,2]"]
    assert main(["train", *given, *lists]) == 0
    assert capsys.readouterr().out.count("record.json") == 6
    found = [read_record(path) for path in tmp_path.glob("runs/*/record.json")]
    assert {record.config["seed"] for record in found} == {0, 1, 2}
    assert {record.population["members"] for record in found} == {6}
    for wrong, words in (
        ("population.lr=fast", "population.lr=fast must be a list"),
        ("+population.size=3", "population does not know: size"),
        ("population.mode=both", "choose from sequential, fused, auto"),
        ("population=3", "population=3 must be a section"),
    ):
        assert main(["train", *given, wrong]) == 1
        assert words in capsys.readouterr().err
