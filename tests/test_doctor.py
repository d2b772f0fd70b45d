"""The doctor: every backend and optional package is named, with what it serves or why not."""

import json
import subprocess

import pytest

from coefdyn import doctor
from coefdyn.cli.doctor import run
from coefdyn.errors import ConfigError
from coefdyn.mixer.backends import ADAPTERS


def test_doctor_names_every_backend_and_why_not(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["format=json"]) == 0
    found = {line["name"]: line for line in json.loads(capsys.readouterr().out)}
    assert {"python", "cpu", "quadratic", "linear", "definition", *ADAPTERS} <= found.keys()
    assert found["sdpa"]["usable"]
    assert found["sdpa"]["note"] == "serves softmax_attention"
    assert found["sdpa"]["version"]
    for name, kernel in ADAPTERS.items():
        assert found[name]["usable"] == (kernel.absence is None)
        if kernel.absence is not None:
            assert found[name]["note"].startswith(kernel.absence)
    assert "mamba2" in found["mamba_ssm"]["note"]
    assert "softmax" not in found["fla"]["note"]


@pytest.mark.slow  # examines the machine again
def test_doctor_prints_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([]) == 0
    assert "flex_attention" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("code", "said", "usable"), [(0, "slurm 23.11.4", True), (1, "no controller", False)]
)
def test_a_cluster_that_does_not_answer_is_none(
    code: int, said: str, usable: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor.shutil, "which", lambda _: "/bin/sbatch")
    answer = subprocess.CompletedProcess([], code, stdout=said, stderr=said)
    monkeypatch.setattr(doctor.subprocess, "run", lambda *_, **__: answer)
    found = doctor._cluster()
    assert found.usable == usable
    assert said in (found.version if usable else found.note)


def test_an_unknown_format_is_one_sentence() -> None:
    with pytest.raises(ConfigError, match="choose from table, json"):
        run(["format=xml"])
