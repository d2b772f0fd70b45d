"""What is logged besides metrics.csv, and under which names."""

import logging
from pathlib import Path
from typing import Any

import pytest
from lightning.pytorch.loggers import WandbLogger

from coefdyn.config.compose import compose
from coefdyn.runs.loggers import Loggers, title
from coefdyn.runs.run import run_one
from tests.runs.runs import folder, run_smoke


def test_a_title_says_what_tells_a_run_from_others() -> None:
    config = compose(["model=gla", "model/readout=relu", "task=memorization", "scale=smoke",
                      "seed=3", "optimizer.lr=1e-3"])  # fmt: skip
    assert title(config) == "gla readout=relu memorization lr=0.001 seed=3"
    assert title(compose(["scale=smoke"])) == "softmax_attention noisy_recall lr=0.005 seed=0"


class Recorder:
    """In place of a run of wandb."""

    def __init__(self) -> None:
        self.config: dict[str, Any] = {}
        self.rows: list[dict[str, Any]] = []
        self.summary: dict[str, Any] = {}
        self.exit_code: int | None = None

    def define_metric(self, *_: Any, **__: Any) -> None: ...

    def log(self, row: dict[str, Any], **_: Any) -> None:
        self.rows.append(row)

    def finish(self, exit_code: int) -> None:
        self.exit_code = exit_code


def test_wandb_gets_names_choices_epochs_and_the_numbers_of_the_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: dict[str, Any] = {}
    run = Recorder()

    def made(_: WandbLogger, **arguments: Any) -> None:
        if arguments["name"] != "check":
            seen.update(arguments)

    monkeypatch.setattr(WandbLogger, "__init__", made)
    monkeypatch.setattr(WandbLogger, "experiment", run)
    monkeypatch.setattr(WandbLogger, "log_hyperparams", lambda _, given: run.config.update(given))
    monkeypatch.setattr(
        WandbLogger, "log_metrics", lambda _, row, step: run.log(row | {"at": step})
    )
    monkeypatch.setattr(WandbLogger, "finalize", lambda *_: None)
    record = run_smoke(tmp_path, "logger=wandb", "model=gla", "seed=2")
    assert seen["name"] == f"gla {record.choices['task']} lr=0.005 seed=2"
    assert seen["group"] == "runs"
    assert seen["tags"] == ["gla", record.choices["task"], "smoke"]
    assert seen["version"] == record.run_id
    assert run.config["choices"]["model/readout"] == "identity"
    assert run.config["seed"] == 2
    assert [row["epoch"] for row in run.rows] == [1, 2]
    assert run.summary["test/accuracy"] == record.metrics["test/accuracy"]
    assert record.coefficients is not None
    assert run.summary["coefficients/near_zero"] == record.coefficients["near_zero"]
    assert run.summary["parameters"] == record.parameters
    assert run.exit_code == 0


def test_tensorboard_has_the_epochs_of_a_run(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    record = run_smoke(tmp_path, "logger=tensorboard")
    place = folder(tmp_path, record) / "tensorboard" / record.run_id
    events = EventAccumulator(str(place)).Reload()
    shown = events.Scalars("test/accuracy")
    expected = record.history["test/accuracy"]
    assert [point.value for point in shown][: len(expected)] == pytest.approx(expected)


def test_a_recorded_run_says_that_nothing_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run_smoke(tmp_path)
    with caplog.at_level(logging.INFO, "coefdyn"):
        run_smoke(tmp_path, "logger=tensorboard")
    assert "nothing is logged to tensorboard for it" in caplog.text
    assert not list(tmp_path.glob("runs/*/tensorboard"))


def test_a_failed_run_ends_its_loggers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[object] = []
    monkeypatch.setattr(Loggers, "end", lambda _, record: ended.append(record))
    monkeypatch.setattr("coefdyn.runs.run.make_record", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        run_one(compose(["scale=smoke", f"paths.results={tmp_path}"]))
    assert ended == [None]
