"""coefdyn show, and what every command has in common."""

import json
from pathlib import Path

import pytest

import coefdyn
from coefdyn.cli import COMMANDS, main
from tests import SCRIPTS


def test_a_record_for_people_and_what_differs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = f"paths.results={tmp_path}"
    runs = [coefdyn.train("scale=smoke", f"seed={seed}", results=tmp_path) for seed in (0, 1)]
    capsys.readouterr()
    assert main(["show", str(runs[0].folder)]) == 0
    text = capsys.readouterr().out
    assert "noisy_recall" in text
    assert f"{runs[0].record.metrics['test/accuracy']:.6g}" in text
    assert main(["show", runs[0].run_id[:8], runs[1].run_id, place]) == 0
    text = capsys.readouterr().out
    assert "seed" in text
    assert "noisy_recall" not in text, "what does not differ is left out"
    assert main(["show", runs[0].run_id, place, "format=json"]) == 0
    assert json.loads(capsys.readouterr().out)["run_id"] == runs[0].run_id
    for bad, words in (
        ([], "takes one run, or two"),
        (["zzz", place], "zzz names no run in"),
        (["", place], "names 2 runs in"),
    ):
        assert main(["show", *bad]) == 1
        assert words in capsys.readouterr().err


def test_every_command_has_help_and_a_script(capsys: pytest.CaptureFixture[str]) -> None:
    scripts = "".join(path.read_text() for path in SCRIPTS.glob("*.py"))
    for name in COMMANDS:
        assert main([name, "--help"]) == 0
        assert f"coefdyn {name} [key=value" in capsys.readouterr().out
        assert f'main(["{name}"' in scripts
    assert main(["--help"]) == 0
    overview = capsys.readouterr().out
    assert all(f"\n  {name} " in overview for name in COMMANDS)
    assert main(["walk"]) == 1
    assert "walk is no command; choose from train, sweep" in capsys.readouterr().err
