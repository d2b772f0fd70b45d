"""The check of a machine: each part survives the others, and its file has a schema."""

import json
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from coefdyn.acceptance import check, parts
from coefdyn.acceptance.parts import Machine
from coefdyn.cli import main
from coefdyn.mixer.backends.trial import Outcome
from coefdyn.paper import measured

PART = {"name": str, "what": str, "status": str, "seconds": float, "rows": list}
TOP = {"schema": int, "device": str, "gpu": bool, "date": str, "overrides": list, "versions": dict,
       "git": dict, "parts": list}  # fmt: skip


def assert_schema(content: dict[str, Any]) -> None:
    assert content.keys() == TOP.keys()
    for key, kind in TOP.items():
        assert isinstance(content[key], kind), key
    assert [part["name"] for part in content["parts"]] == list(parts.PARTS)
    for part in content["parts"]:
        assert part.keys() == PART.keys() | {"why"}
        for key, kind in PART.items():
            assert isinstance(part[key], kind), key
        assert part["status"] in ("done", "failed", "not run")
        assert (part["why"] is None) == (part["status"] == "done")
        assert all(isinstance(row, dict) for row in part["rows"])


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two experiments and two presets: all of them take minutes."""
    monkeypatch.setattr(parts, "options", lambda _: ["principle3_position", "principle5_wikitext"])
    monkeypatch.setattr(parts, "PRESETS", {"softmax_attention": "", "deltanet": ""})


@pytest.mark.long
@pytest.mark.usefixtures("few")
@pytest.mark.filterwarnings("ignore")
def test_a_cpu_runs_everything_that_needs_no_gpu(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # without prepared text
    assert main(["doctor", "full=true", f"paths.results={tmp_path}"]) == 0
    printed = capsys.readouterr().out
    assert "they need a GPU" in " ".join(printed.replace("│", " ").split())
    content = json.loads((tmp_path / "gpu" / "cpu.json").read_text())
    assert_schema(content)
    found = {part["name"]: part for part in content["parts"]}
    assert found["tests"]["status"] == "not run"
    others = [part for name, part in found.items() if name != "tests"]
    assert {part["status"] for part in others} == {"done"}
    assert all(part["rows"] for part in others)
    steps = {(row["preset"], row["backend"]): row for row in found["throughput"]["rows"]}
    assert steps["deltanet", "linear"]["tokens_per_second"] > 0
    assert "cannot serve this design" in steps["deltanet", "sdpa"]["cannot"]
    assert [row["members"] for row in found["populations"]["rows"]] == [1, 2, 4]
    runs = {row["experiment"]: row for row in found["short_runs"]["rows"]}
    assert runs["principle3_position"]["hours_of_all"] > 0
    assert "cannot" in runs["principle5_wikitext"]
    trials = found["trials"]["rows"]
    assert trials
    assert all(row["wrong"] is None for row in trials)
    assert {row["form"] for row in found["lengths"]["rows"]} == {"linear", "quadratic"}
    assert (tmp_path / "gpu" / "cpu_lengths.png").stat().st_size > 1000
    assert measured.section(tmp_path) == ""  # a CPU is no measurement


def _one(_: Machine) -> Iterator[dict[str, Any]]:
    """One row."""
    yield {"number": 1}


def _failing(_: Machine) -> Iterator[dict[str, Any]]:
    """A row, then an error."""
    yield {"number": 2}
    raise RuntimeError("CUDA error:\nan illegal memory access")


def test_a_part_survives_the_failure_of_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(check, "PARTS", {"bad": _failing, "good": _one})
    assert main(["doctor", "full=true", f"paths.results={tmp_path}"]) == 1
    content = json.loads((tmp_path / "gpu" / "cpu.json").read_text())
    bad, good = content["parts"]
    assert bad["rows"] == [{"number": 2}]
    assert bad["why"].startswith("RuntimeError in test_acceptance.py:")
    assert bad["why"].endswith("CUDA error: an illegal memory access")
    assert good["status"] == "done"
    assert "please send it" in " ".join(capsys.readouterr().out.split())


def test_a_wrong_kernel_is_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = {"what": "fla", **vars(replace(Outcome(None, None, {}, None), wrong="it is off"))}

    def trials(_: Machine) -> Iterator[dict[str, Any]]:
        """A trial."""
        yield wrong

    monkeypatch.setattr(check, "PARTS", {"trials": trials})
    assert main(["doctor", "full=true", f"paths.results={tmp_path}"]) == 1


@pytest.mark.parametrize("code", [0, 1])
def test_failing_tests_of_a_gpu_are_a_failure(code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    done = subprocess.CompletedProcess([], code, stdout="3 passed\n")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: done)
    (row,) = parts.tests(Machine(torch.device("cuda")))
    assert row["output"] == ["3 passed"]
    part = check.Part("tests", "", "done", None, 0.0, [row])
    assert part.failures == code


def test_unknown_part_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "full=true", "parts=[kernels]", f"paths.results={tmp_path}"]) != 0
    assert "parts=kernels is not known; choose from machine, tests, " in capsys.readouterr().err
    assert not (tmp_path / "gpu").exists()


def test_a_gpu_gets_a_section_of_the_page(tmp_path: Path) -> None:
    (tmp_path / "gpu").mkdir()
    step = {"preset": "gla", "backend": "fla", "milliseconds": 1.5, "tokens_per_second": 2e6,
            "launches": 300, "megabytes": 12.0}  # fmt: skip
    rows: dict[str, list[dict[str, Any]]] = {
        "throughput": [step, {"preset": "gla", "backend": "sdpa", "cannot": "no"}],
        "trials": [{"what": "fla, <GLA>", "wrong": "its output is off"}, {"what": "x"}],
        "short_runs": [{"experiment": "principle3_position", "hours_of_all": 4.25}],
    }
    found = [
        {"name": name, "what": "", "status": "done", "why": None, "seconds": 1.0,
         "rows": rows.get(name, [])}
        for name in parts.PARTS
    ]  # fmt: skip
    found[1] |= {"status": "failed", "why": "no pytest"}
    content = {"device": "RTX <4090>", "gpu": True, "date": "2026-11-18", "parts": found,
               "versions": {"coefdyn": "0.2", "torch": "2.13"}}  # fmt: skip
    (tmp_path / "gpu" / "rtx.json").write_text(json.dumps(content))
    html = measured.section(tmp_path)
    for words in ("RTX &lt;4090&gt;", "tests: failed, no pytest", "2 trials of kernels, 1 of them",
                  "fla, &lt;GLA&gt;: its output is off", "principle3_position 4.25",
                  "<td>2e+06</td><td>1.5</td><td>300</td><td>12</td>"):  # fmt: skip
        assert words in html
    assert html.count("<tr>") == 2


def test_device_names_become_file_names() -> None:
    assert check._file_name("NVIDIA GeForce RTX 4090 (24 GB)") == "nvidia_geforce_rtx_4090_24_gb"
    assert Machine(torch.device("cpu")).name == "cpu"
