"""`make repeat` tells records that repeat from those that do not."""

from dataclasses import replace
from pathlib import Path

import pytest

from coefdyn.runs.archive import Archive
from tests.repeat import main
from tests.runs.runs import run_smoke


@pytest.mark.long
def test_a_changed_digit_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    true = run_smoke(tmp_path / "first")
    other = run_smoke(tmp_path / "first", "seed=1")
    changed = replace(
        other, metrics=other.metrics | {"test/loss": other.metrics["test/loss"] + 1e-7}
    )
    elsewhere = replace(true, run_id="e" * 16, device=true.device | {"kind": "another"})
    Archive(tmp_path).add([true, changed, elsewhere])
    call = ["--count=2", f"--results={tmp_path}", f"--scratch={tmp_path / 'again'}"]
    assert main(call) == 1
    lines = {line.split()[0]: line for line in capsys.readouterr().out.splitlines()}
    assert lines[true.run_id].endswith(": the same in every digit")
    assert lines[changed.run_id].endswith(": differs in metrics")
    assert lines["1"] == "1 of 2 runs repeat in every digit"


@pytest.mark.parametrize("count", [3, 0, -1])
def test_a_number_of_runs_that_cannot_be_drawn_is_one_sentence(
    count: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([f"--count={count}", f"--results={tmp_path}"]) == 2
    assert (
        f"has 0 records, 0 of them made on this kind of processor: --count={count} must lie"
        in capsys.readouterr().err
    )
