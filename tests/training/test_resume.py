"""A run that was killed and started again ends as if nothing had happened, bit for bit."""

from pathlib import Path
from typing import Any

import pytest
import torch

from coefdyn.training.build import Config, compose
from coefdyn.training.checkpoint import KeepProgress
from coefdyn.training.run import run_one

EPOCHS, STEPS = 3, 4
SETTINGS = [
    "scale=smoke",
    "task.num_train=60",  # the last batch of an epoch is not full
    f"trainer.max_epochs={EPOCHS}",
    "optimizer.weight_decay=0.1",
    "trainer.clip=1.0",
]


class KilledError(BaseException):
    """As abrupt as a signal, for code that catches Exception."""


def config(results: Path, *more: str) -> Config:
    return compose([*SETTINGS, f"paths.results={results}", *more])


def outcome(results: Path, record: dict[str, Any]) -> tuple[Any, ...]:
    directory = results / "runs" / record["run_id"]
    weights = torch.load(directory / "last.ckpt", weights_only=True)["state_dict"]
    kept = {k: v for k, v in record.items() if k not in ("seconds", "config")}
    return (
        kept,
        {k: v.tolist() for k, v in weights.items()},
        (directory / "metrics.csv").read_text(),
    )


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, ...]:
    results = tmp_path_factory.mktemp("undisturbed")
    torch.set_num_threads(1)
    return outcome(results, run_one(config(results)))


@pytest.mark.parametrize("seconds", ["1e-9", "1e9"], ids=["every step", "ends of epochs"])
@pytest.mark.parametrize("killed_after", range(1, EPOCHS * STEPS + 1))
def test_killed_after_any_step(
    killed_after: int,
    seconds: str,
    undisturbed: tuple[Any, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wanted = config(tmp_path, f"trainer.checkpoint_seconds={seconds}")
    save = KeepProgress.on_train_batch_end

    def killed(self: KeepProgress, trainer: Any, *arguments: Any) -> None:
        save(self, trainer, *arguments)
        if trainer.global_step == killed_after:
            raise KilledError

    with monkeypatch.context() as patch:
        patch.setattr(KeepProgress, "on_train_batch_end", killed)
        with pytest.raises(KilledError):
            run_one(wanted)
    assert outcome(tmp_path, run_one(wanted)) == undisturbed
