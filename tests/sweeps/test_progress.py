"""What a person sees of a running sweep."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from coefdyn.config.grid import plan
from coefdyn.sweeps import progress
from coefdyn.sweeps.progress import Progress
from coefdyn.sweeps.worker import Outcome


@pytest.mark.parametrize("terminal", [True, False])
def test_progress_says_what_is_done_left_and_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, terminal: bool
) -> None:
    monkeypatch.setattr(progress, "REFRESH", 0.0)
    runs = plan(["scale=smoke", "seed=0,1,2", f"paths.results={tmp_path}"])
    text = io.StringIO()
    console = Console(file=text, force_terminal=terminal, width=120, height=40)
    with Progress(runs, jobs=1, console=console) as shown:
        shown.finished(runs[0], Outcome("done", "accuracy 0.5"), 90.0)
        shown.finished(runs[1], Outcome("failed", "no [/room] left"), 1.0)
        shown.show({0: (runs[2:3], shown.started)})
        seen = text.getvalue()
    if not terminal:
        assert "1/3" in seen
        assert "accuracy 0.5, 90 s: seed=0, about 0:03:00 left" in seen
        return
    assert "2 of 3: 1 done, 0 diverged, 1 failed" in seen
    assert "about 0:01:30 left" in seen
    assert f"{runs[1].run_id} failed: no [/room] left" in seen
    for word in ("seed=2", "0/2", runs[2].run_id):
        assert word in seen


class FullDisk(io.StringIO):
    def write(self, _: str) -> int:
        raise OSError(28, "No space left on device")


@pytest.mark.parametrize("terminal", [True, False])
def test_a_full_disk_under_the_log_does_not_stop_a_sweep(tmp_path: Path, terminal: bool) -> None:
    runs = plan(["scale=smoke", f"paths.results={tmp_path}"])
    shown = Progress(runs, jobs=1, console=Console(file=FullDisk(), force_terminal=terminal))
    shown.shown = 0.0
    with shown:
        shown.finished(runs[0], Outcome("done", "accuracy 0.5"), 1.0)
        shown.show({0: (runs[:1], 0.0)})
    assert shown.counts["done"] == 1
