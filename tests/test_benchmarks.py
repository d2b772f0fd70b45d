"""Measuring: what is counted is what was allocated, and the command answers bad input."""

import json
import subprocess
import sys

import pytest
import torch

from coefdyn.allocator import keep_freed_memory
from coefdyn.benchmarks.measure import interleaved_medians, peak_megabytes, result
from coefdyn.mixer.forms.quadratic import quadratic_form
from coefdyn.mixer.slots.readout import Softplus
from coefdyn.mixer.slots.transition import Transition
from tests import SCRIPTS

SCRIPT = SCRIPTS / "benchmark.py"


def test_peak_memory_counts_what_is_alive_together() -> None:
    def two_alive() -> None:
        first = torch.zeros(2**18)  # 1 MB
        second = first + 1
        del first
        second + 1

    assert peak_megabytes(two_alive) == pytest.approx(2.0, abs=0.01)


def test_quadratic_form_takes_a_quarter_of_the_memory_of_a_dense_one() -> None:
    q, k, v = (torch.randn(16, 16, 256, 8, requires_grad=True) for _ in range(3))

    def dense() -> object:
        alpha = Softplus()(q @ k.mT).tril()
        return torch.autograd.grad((alpha @ v).sum(), (q, k, v))

    def ours() -> object:
        total, _ = quadratic_form(q, k, v, Transition(), Softplus(), shift=False)
        return torch.autograd.grad(total.sum(), (q, k, v))

    assert peak_megabytes(ours) < peak_megabytes(dense) / 4


def test_cases_take_turns() -> None:
    order: list[str] = []
    interleaved_medians({name: lambda name=name: order.append(name) for name in "ab"}, repeats=3)
    assert "".join(order) == "ab" * 4


# Working calls and leaves of one training step, the same at both scales. A change here is a change
# of every run's speed.
CALLS = {
    "softmax_attention": (94, 368),
    "linear_attention": (114, 410),
    "normalized_attention": (108, 418),
    "gla": (140, 544),
    "mamba2": (154, 542),
    "deltanet": (162, 568),
    "gated_deltanet": (196, 664),
    "mlstm": (240, 766),  # too many leaves: 25 conversions between float64 units and float32
}


@pytest.mark.slow
def test_a_training_step_calls_so_many_operators() -> None:
    """In a process of its own: here, memory that nobody wrote is filled, which takes calls."""
    command = [sys.executable, SCRIPT, "suite=calls", "format=json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = [json.loads(line) for line in done.stdout.splitlines()]
    counts = {result["case"]: result["value"] for result in found}
    assert counts == {
        f"calls of a training step, {preset}, scale={scale}, {kind}": count
        for preset, calls in CALLS.items()
        for scale in ("lite", "paper")
        for kind, count in zip(("that do work", "leaves"), calls, strict=True)
    }
    missed = {result["case"].split(", ")[1] for result in found if not result["ok"]}
    assert missed == {"mlstm"}
    assert done.returncode == 1


def test_a_ratio_above_its_bar_is_not_ok() -> None:
    assert result("s", "c", 2.0, "ms", 1.0, bar=2.0).ok
    assert not result("s", "c", 2.1, "ms", 1.0, bar=2.0).ok


def test_freed_memory_is_kept_on_glibc() -> None:
    assert keep_freed_memory() == sys.platform.startswith("linux")


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("suite=speed", "choose from calls, coefficients"),
        ("format=xml", "choose from table, json"),
        ("repeat=3", "did you mean repeats=3"),
        ("repeats=0", "at least 1"),
    ],
)
def test_bad_arguments_get_one_sentence(argument: str, message: str) -> None:
    done = subprocess.run(
        [sys.executable, SCRIPT, argument], capture_output=True, text=True, check=False
    )
    assert done.returncode != 0
    assert done.stdout == ""
    assert done.stderr.startswith("error: ")
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
