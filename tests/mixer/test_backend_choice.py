"""Which backend computes a design: by name, by auto, and why not."""

from pathlib import Path

import pytest
import torch

from coefdyn.config.build import build_mixer
from coefdyn.config.compose import compose
from coefdyn.errors import ConfigError
from coefdyn.mixer.backends import ADAPTERS
from coefdyn.mixer.backends.choice import candidates
from coefdyn.mixer.backends.fla import Fla
from coefdyn.mixer.compiled.kernels import without_kernels
from tests.runs.runs import run_smoke


@pytest.mark.parametrize(
    ("name", "overrides", "sentence"),
    [
        ("sdpa", ["model=gla"], "cannot serve this design: it serves phi = exp with eta = row_sum"),
        ("sdpa", ["model/evolution=scalar_gla"], "cannot serve this design: it serves A_t = I"),
        ("flash_attn", ["model=relu_attention"], "cannot serve this design: it serves phi = exp"),
        ("flex_attention", ["model=linear_attention"], "it serves readouts of a score that are b"),
        ("flex_attention", ["model/readout=identity"], "it serves readouts of a score that are b"),
        ("flex_attention", ["model/readout=tanh"], "it serves signed readouts alone whose coeff"),
        (
            "flex_attention",
            ["model/readout=relu", "model/evolution=diagonal_gla"],
            "it serves rotations, shears and positive decays per head alone",
        ),
        (
            "flex_attention",
            ["model/readout=relu", "model/scaling=exp_input_inverse_sqrt"],
            "the design's coefficients may overflow",
        ),
        ("fla", [], "it serves phi = identity, or a kernel readout such as kernel_relu, alone"),
        ("mamba_ssm", ["model=gla"], "it serves A_t = exp(-Delta_t A) with one A per head alone"),
        (
            "cudnn",
            [],
            "is not known; choose from auto, quadratic, linear, compiled, definition, sdpa, fla",
        ),
    ],
)
def test_backend_that_cannot_serve_is_one_sentence(
    name: str, overrides: list[str], sentence: str
) -> None:
    model = [] if any(x.startswith("model=") for x in overrides) else ["model=softmax_attention"]
    with pytest.raises(ValueError, match=r"^model\.backend=") as caught:
        build_mixer(compose([*model, *overrides, f"model.backend={name}"]))
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "model", "installed", "sentence"),
    [
        ("mamba_ssm", "mamba2", False, "it is not installed (pip install mamba-ssm); use auto"),
        ("flash_attn", "softmax_attention", False, "it is not installed (pip install flash-attn)"),
        ("fla", "gla", True, "it needs a CUDA device, and there is none; use auto"),
    ],
)
def test_backend_that_is_not_here_is_one_sentence(
    name: str, model: str, installed: bool, sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(ADAPTERS[name].__dict__, "absence", raising=False)
    monkeypatch.setattr("importlib.util.find_spec", lambda _: object() if installed else None)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    made = build_mixer(compose([f"model={model}"]))
    with pytest.raises(ValueError, match="cannot be used on this machine: ") as caught:
        made.backend = name
    assert sentence in str(caught.value)
    monkeypatch.delitem(ADAPTERS[name].__dict__, "absence")


def test_kernel_says_where_and_in_which_precision_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    made = build_mixer(compose(["model=deltanet", "scale=smoke"]))
    monkeypatch.setitem(ADAPTERS["fla"].__dict__, "absence", None)
    made.backend = "fla"
    x = torch.randn(1, 4, made.d_model)
    with pytest.raises(ValueError, match=r"but the model is on the cpu \(use trainer=cuda\)"):
        made(x)
    monkeypatch.setattr(type(ADAPTERS["fla"]), "needs_cuda", False)
    with pytest.raises(ValueError, match=r"in bfloat16 only \(use trainer.precision=bf16-mixed"):
        made(x)
    wide = build_mixer(compose(["model=deltanet", "model.n_state=1024", "model.n_heads=2"]))
    wide.backend = "fla"
    with (
        torch.autocast("cpu", torch.bfloat16),
        pytest.raises(ValueError, match="at most 256 channels, and these have 512"),
    ):
        wide(torch.randn(1, 4, wide.d_model))


def test_package_that_cannot_be_imported_is_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = type(ADAPTERS["fla"])()
    kernel.module = "fla.ops.no_such_module"
    monkeypatch.setattr(type(kernel), "needs_cuda", False)
    absence = kernel.absence
    assert absence is not None
    assert absence.startswith("it cannot be imported: ")


@pytest.mark.parametrize(
    ("preset", "device", "half", "tried"),
    [
        ("softmax_attention", "cuda", None, ["sdpa", "flex_attention"]),
        ("softmax_attention", "cuda", torch.bfloat16, ["sdpa", "flex_attention"]),
        ("relu_attention", "cuda", None, ["flex_attention"]),
        ("fox", "cuda", torch.bfloat16, ["flex_attention"]),
        ("gla", "cuda", torch.bfloat16, ["fla"]),
        ("gla", "cuda", None, []),
        ("linear_attention", "cuda", torch.bfloat16, []),
        ("path", "cuda", torch.bfloat16, []),
        ("softmax_attention", "cpu", None, ["sdpa"]),
        ("softmax_attention", "cpu", torch.bfloat16, []),
        ("gla", "cpu", torch.bfloat16, []),
    ],
)
def test_auto_tries_the_kernels_that_fit_best_first(
    preset: str,
    device: str,
    half: torch.dtype | None,
    tried: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = build_mixer(compose([f"model={preset}", "model.n_state=64", "model.n_heads=2"]))
    for kernel in ADAPTERS.values():
        monkeypatch.setitem(kernel.__dict__, "absence", None)
    assert candidates(made.design, (32, 32), torch.device(device), half) == tried
    for kernel in ADAPTERS.values():
        monkeypatch.setitem(kernel.__dict__, "absence", "it is not installed")
    assert candidates(made.design, (32, 32), torch.device(device), half) == []
    assert candidates(made.design, (8, 32), torch.device("cpu"), None) == []


@pytest.mark.parametrize("stand_in", ["fla"], indirect=True)
def test_a_run_by_a_kernel_in_half_precision_ends_in_its_record(
    stand_in: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Fla, "needs_half", lambda *_: True)
    choice = ["model=deltanet", "trainer.precision=bf16-mixed"]
    own = run_smoke(tmp_path / "own", *choice)
    record = run_smoke(tmp_path / "kernel", *choice, f"model.backend={stand_in}")
    assert set(record.backend) == {stand_in}
    assert record.metrics["test/loss"] == pytest.approx(own.metrics["test/loss"], rel=0.02)
    monkeypatch.setattr(ADAPTERS[stand_in].call, "delta", lambda *_, **__: 1 / 0)
    with pytest.raises(ConfigError, match=r"^model\.backend=fla fails here: division by zero; use"):
        run_smoke(tmp_path / "broken", *choice, f"model.backend={stand_in}")
    assert not (tmp_path / "broken").exists()


def test_auto_works_silently_without_any(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for kernel in ADAPTERS.values():
        monkeypatch.setitem(kernel.__dict__, "absence", "it is not installed")
    made = build_mixer(compose(["model=gla", "scale=smoke"]))
    with without_kernels():
        made(torch.randn(1, 4, made.d_model))
    assert made.form_used in ("quadratic", "linear")
    assert not [record for record in caplog.records if record.levelname != "INFO"]
