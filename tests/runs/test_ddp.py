"""Several processes that share a run."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from coefdyn.config.build import build_task
from coefdyn.config.compose import compose
from coefdyn.errors import ConfigError
from coefdyn.runs.data import ExampleData
from coefdyn.runs.processes import Processes
from coefdyn.runs.record import Record, read_record
from coefdyn.runs.run import run_one
from coefdyn.tasks.task import Examples
from coefdyn.tasks.text.prepare import prepare
from tests.runs.runs import history

DDP = ["trainer=ddp", "trainer.precision=fp32", "trainer.devices.accelerator=cpu",
       "trainer.devices.threads=1"]  # fmt: skip


def overrides(tmp_path: Path, *more: str) -> list[str]:
    return ["task=wikitext103", "scale=smoke", "task.vocab_size=258", "model=mamba2",
            f"paths.data={tmp_path}/data", "trainer.clip=0.5", *more]  # fmt: skip


def two(arguments: list[str]) -> "subprocess.Popen[str]":
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    script = str(Path(__file__).with_name("train_in_float64.py"))
    return subprocess.Popen(
        [sys.executable, *launch, script, *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"}, start_new_session=True,
    )  # fmt: skip


def record_in(results: Path) -> Record:
    (path,) = results.glob("runs/*/record.json")
    record = read_record(path)
    assert record is not None
    return record


@pytest.mark.slow
def test_two_processes_take_the_steps_of_one(tmp_path: Path, text: dict[str, Any]) -> None:
    """Also when they are asked to end in the midst of an epoch, and go on."""
    prepare(text)
    long = ["task.epoch_steps=60", "trainer.max_epochs=2", "trainer.devices.threads=1"]
    torch.set_default_dtype(torch.float64)
    try:
        alone = run_one(compose(overrides(tmp_path, f"paths.results={tmp_path}/one", *long)))
    finally:
        torch.set_default_dtype(torch.float32)

    arguments = [*overrides(tmp_path, f"paths.results={tmp_path}/two", *long), *DDP]
    first = two([*arguments, "trainer.checkpoint_seconds=1e-9"])
    while not list(tmp_path.glob("two/runs/*/last.ckpt")):
        assert first.poll() is None, first.communicate()
        time.sleep(0.05)
    os.kill(first.pid, signal.SIGTERM)  # torchrun passes it on to both
    said = first.communicate(timeout=120)
    assert not list(tmp_path.glob("two/runs/*/record.json")), said
    assert "asked to end" in said[1]

    second = two(arguments)
    out, err = second.communicate(timeout=120)
    assert second.returncode == 0, err
    together = record_in(tmp_path / "two")
    assert together.run_id == alone.run_id
    assert together.device["processes"] == 2
    assert len(together.earlier_sessions) == 1
    assert out.count("record.json") == 1  # one of them speaks
    for name, value in alone.metrics.items():
        assert together.metrics[name] == pytest.approx(value, rel=1e-6), name
    rows = zip(history(tmp_path / "one", alone), history(tmp_path / "two", together), strict=True)
    for ours, theirs in rows:
        assert float(ours["train/loss"]) == pytest.approx(float(theirs["train/loss"]), rel=1e-6)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ([], "torchrun --nproc-per-node=N"),
        (["trainer.devices.strategy=dp"], "choose from single, ddp"),
        (["trainer.devices.compile=1"], "must be true or false"),
    ],
)
def test_what_cannot_be_shared_is_named(tmp_path: Path, change: list[str], words: str) -> None:
    config = compose(["scale=smoke", f"paths.results={tmp_path}", *DDP, *change])
    with pytest.raises(ConfigError, match=words):
        run_one(config)
    assert not list(tmp_path.iterdir())


def test_tasks_of_small_batches_are_not_shared() -> None:
    nothing = Examples(np.zeros((4, 3), np.int64), np.zeros((4, 3), np.int64))
    data = ExampleData(build_task(compose(["scale=smoke"])), nothing, nothing)
    with pytest.raises(ValueError, match="ddp with 2 processes is for text"):
        data.training_batches(2, torch.device("cpu"), 0, processes=Processes(0, 2))


@pytest.mark.slow
def test_an_odd_batch_is_not_shared(tmp_path: Path, text: dict[str, Any]) -> None:
    prepare(text)
    process = two(
        [*overrides(tmp_path, f"paths.results={tmp_path}/two", "trainer.batch_size=3"), *DDP]
    )
    _, err = process.communicate(timeout=120)
    assert process.returncode
    assert err.count("error: trainer.batch_size=3 cannot be shared evenly by 2 processes") == 1
    assert not list(tmp_path.glob("two/runs/*"))
