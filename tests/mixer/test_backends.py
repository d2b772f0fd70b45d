"""Adapters to kernels equal the quadratic form, in value and in all gradients.

Each runs with its package's own plain function in place of the kernel: layouts, scales and signs
are what an adapter can have wrong. The kernels themselves are for the tests marked gpu.
"""

import warnings
from functools import cache
from pathlib import Path
from typing import Any

import jaxtyping
import pytest
import torch
from torch.nn.attention import flex_attention as flex

from coefdyn.errors import ConfigError
from coefdyn.mixer import sequence_mixer
from coefdyn.mixer.backends import KERNELS
from coefdyn.mixer.backends.fla import Fla
from coefdyn.mixer.backends.kernel import Kernel
from coefdyn.mixer.sequence_mixer import SequenceMixer
from coefdyn.training.build import build_mixer
from coefdyn.training.config import compose
from tests import designs
from tests.mixer import references
from tests.training.runs import run_smoke

PRESETS = {  # and variants, by the kernel that must serve them
    "sdpa": ["softmax_attention"],
    "fla": ["linear_attention", "gla", "mamba2", "deltanet", "gated_deltanet", "mlstm"],
    "flex_attention": [
        "softmax_attention",
        "relu_attention",
        "softmax_attention model/normalization=mlstm",
        "relu_attention model/normalization=one",
    ],
    "flash_attn": ["softmax_attention"],
    "mamba_ssm": ["mamba2", "mamba2_inverse_sqrt"],
}


@cache
def served(name: str) -> list[designs.Choice]:
    """Designs without an obstacle: every pair of choices that occurs among them."""
    obstacle = KERNELS[name].obstacle
    return designs.cover([c for c in designs.accepted() if obstacle(designs.design(c)) is None])


@pytest.fixture
def stand_in(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a backend that now works on a CPU, its package's plain functions in it."""
    name: str = request.param
    kernel = KERNELS[name]

    def use(call: Any) -> None:
        monkeypatch.setitem(kernel.__dict__, "call", call)

    if name == "fla":
        use(references.fla_kernels())
    elif name == "mamba_ssm":
        use(references.mamba_ssm_scan(monkeypatch))
    elif name == "flash_attn":
        use(references.flash_attn_function(monkeypatch))
    elif name == "flex_attention":
        # Its plain version is traced, which a type check inside phi would break; and on a CPU it
        # refuses gradients, though that version has them.
        monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
        monkeypatch.setattr(flex, "_validate_device", lambda *_: None)
        with monkeypatch.context() as plain:
            plain.setattr(torch, "compile", lambda function: function)
            use(kernel.functions(flex))
    monkeypatch.setattr(type(kernel), "needs_cuda", False)
    monkeypatch.setattr(type(kernel), "needs_half", Kernel.needs_half)
    monkeypatch.setitem(kernel.__dict__, "absence", None)
    return name


def assert_equal_to_quadratic(made: SequenceMixer, name: str, x: torch.Tensor) -> None:
    weight = torch.randn_like(made(x))
    expected = designs.run(made, "quadratic", x, weight)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # flex_attention's, that it is not compiled
        found = designs.run(made, name, x, weight)
    assert made.form_used == name
    largest = max(g.abs().max() for key, g in expected.items() if key != "y")
    for key, value in found.items():
        scale = expected[key].abs().max().clamp(min=1e-2 * largest)
        error = (value - expected[key]).abs().max() / scale
        assert error <= 1e-4, f"{name}, {key}: off by {error:.1e}"


@pytest.mark.parametrize(
    "stand_in",
    [  # FlexAttention is traced anew for each
        pytest.param(name, marks=pytest.mark.slow if name == "flex_attention" else ())
        for name in KERNELS
    ],
    indirect=True,
)
def test_adapter_equals_quadratic_for_every_design_it_serves(stand_in: str) -> None:
    choices = served(stand_in)
    assert len(choices) >= 3
    for choice in choices:
        made = designs.mixer(choice, torch.float32)
        assert_equal_to_quadratic(made, stand_in, designs.inputs(made, batch=2, length=12))


@pytest.mark.parametrize("stand_in", list(KERNELS), indirect=True)
def test_adapter_equals_quadratic_for_presets(stand_in: str) -> None:
    sizes = [f"model.{size}={value}" for size, value in designs.SIZES.items()]
    for preset in PRESETS[stand_in]:
        made = build_mixer(compose([*f"model={preset}".split(), *sizes]))
        x = torch.randn(2, 12, designs.SIZES["d_model"], requires_grad=True)
        assert_equal_to_quadratic(made, stand_in, x)


@pytest.mark.parametrize("stand_in", ["sdpa", "fla"], indirect=True)
def test_autocast_gives_the_kernel_half_precision_and_returns_full(stand_in: str) -> None:
    preset = {"sdpa": "softmax_attention", "fla": "linear_attention"}[stand_in]
    made = build_mixer(compose([f"model={preset}", "scale=smoke"]))
    x = torch.randn(2, 12, made.d_model)
    full = made(x)
    made.backend = stand_in
    with torch.autocast("cpu", torch.bfloat16):
        half = made(x)
    assert half.dtype == torch.float32
    error = (half - full).abs().max() / full.abs().max()
    assert 1e-5 < error < 3e-2


@pytest.mark.parametrize(
    ("name", "overrides", "sentence"),
    [
        ("sdpa", ["model=gla"], "cannot serve this design: it serves phi = exp with eta = row_sum"),
        ("sdpa", ["model/evolution=scalar_gla"], "cannot serve this design: it serves A_t = I"),
        ("flash_attn", ["model=relu_attention"], "cannot serve this design: it serves phi = exp"),
        ("flex_attention", ["model=linear_attention"], "it serves readouts phi(s) >= 0"),
        (
            "flex_attention",
            ["model/readout=relu", "model/scaling=exp_input_inverse_sqrt"],
            "the design's b_j may overflow",
        ),
        ("fla", [], "it serves phi = identity, or a kernel readout such as kernel_relu, alone"),
        ("mamba_ssm", ["model=gla"], "it serves A_t = exp(-Delta_t A) with one A per head alone"),
        ("cudnn", [], "is not known; choose from auto, quadratic, linear, definition, sdpa, fla"),
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
    monkeypatch.delitem(KERNELS[name].__dict__, "absence", raising=False)
    monkeypatch.setattr("importlib.util.find_spec", lambda _: object() if installed else None)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    made = build_mixer(compose([f"model={model}"]))
    with pytest.raises(ValueError, match="cannot be used on this machine: ") as caught:
        made.backend = name
    assert sentence in str(caught.value)
    monkeypatch.delitem(KERNELS[name].__dict__, "absence")


def test_kernel_says_where_and_in_which_precision_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    made = build_mixer(compose(["model=deltanet", "scale=smoke"]))
    monkeypatch.setitem(KERNELS["fla"].__dict__, "absence", None)
    made.backend = "fla"
    x = torch.randn(1, 4, made.d_model)
    with pytest.raises(ValueError, match=r"but the model is on the cpu \(use trainer=cuda\)"):
        made(x)
    monkeypatch.setattr(type(KERNELS["fla"]), "needs_cuda", False)
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
    kernel = type(KERNELS["fla"])()
    kernel.module = "fla.ops.no_such_module"
    monkeypatch.setattr(type(kernel), "needs_cuda", False)
    absence = kernel.absence
    assert absence is not None
    assert absence.startswith("it cannot be imported: ")


@pytest.mark.parametrize(
    ("preset", "device", "installed", "half", "chosen"),
    [
        ("softmax_attention", "cuda", True, None, "sdpa"),
        ("softmax_attention", "cuda", False, torch.bfloat16, "sdpa"),
        ("gla", "cuda", True, torch.bfloat16, "fla"),
        ("gla", "cuda", True, None, None),
        ("gla", "cuda", False, torch.bfloat16, None),
        ("linear_attention", "cuda", True, torch.bfloat16, None),
        ("relu_attention", "cuda", True, torch.bfloat16, None),
        ("softmax_attention", "cpu", True, None, "sdpa"),
        ("softmax_attention", "cpu", True, torch.bfloat16, None),
        ("gla", "cpu", True, torch.bfloat16, None),
    ],
)
def test_auto_takes_a_kernel_where_one_fits_and_pays(
    preset: str,
    device: str,
    installed: bool,
    half: torch.dtype | None,
    chosen: str | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = build_mixer(compose([f"model={preset}", "model.n_state=64", "model.n_heads=2"]))
    absence = None if installed else "it is not installed"
    monkeypatch.setitem(KERNELS["fla"].__dict__, "absence", absence)
    monkeypatch.setattr(SequenceMixer, "_agrees", lambda *_: True)
    assert made._fitting_kernel(torch.device(device), half) == chosen
    made.may_use_kernels = False
    assert made._fitting_kernel(torch.device(device), half) is None
    narrow = build_mixer(compose([f"model={preset}", "model.n_state=64", "model.n_heads=8"]))
    assert narrow._fitting_kernel(torch.device("cpu"), None) is None


@pytest.mark.parametrize("stand_in", ["fla"], indirect=True)
def test_auto_tries_a_kernel_before_it_takes_it(
    stand_in: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    kernel, cpu = KERNELS[stand_in], torch.device("cpu")
    made = build_mixer(compose(["model=gla", "scale=smoke"]))
    state = torch.get_rng_state()
    with torch.inference_mode():
        assert made._agrees(kernel, cpu, None)
    assert not caplog.records
    decays = kernel.call.decays
    for broken, said in (
        (lambda *x, **y: (2 * decays(*x, **y)[0],), "fla is not used, for it is off by [1.0"),
        (lambda q, *_, **__: (q * torch.nan,), "fla is not used, for it is off by [nan"),
        (lambda *_, **__: 1 / 0, "fla is not used, for it fails here: division by zero"),
    ):
        monkeypatch.setattr(kernel.call, "decays", broken)
        assert not made._agrees(kernel, cpu, None)
        assert said in caplog.text
    assert (torch.get_rng_state() == state).all()


@pytest.mark.parametrize("stand_in", ["fla"], indirect=True)
def test_a_run_by_a_kernel_in_half_precision_ends_in_its_record(
    stand_in: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Fla, "needs_half", lambda *_: True)
    choice = ["model=deltanet", "trainer.precision=bf16-mixed"]
    own = run_smoke(tmp_path / "own", *choice)
    record = run_smoke(tmp_path / "kernel", *choice, f"model.backend={stand_in}")
    assert set(record["backend"]) == {stand_in}
    assert record["metrics"]["test/loss"] == pytest.approx(own["metrics"]["test/loss"], rel=0.02)
    monkeypatch.setattr(KERNELS[stand_in].call, "delta", lambda *_, **__: 1 / 0)
    with pytest.raises(ConfigError, match=r"^model\.backend=fla fails here: division by zero; use"):
        run_smoke(tmp_path / "broken", *choice, f"model.backend={stand_in}")
    assert not (tmp_path / "broken").exists()


def test_auto_works_silently_without_any(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for kernel in KERNELS.values():
        monkeypatch.setitem(kernel.__dict__, "absence", "it is not installed")
    made = build_mixer(compose(["model=gla", "scale=smoke"]))
    made(torch.randn(1, 4, made.d_model))
    assert made.form_used in ("quadratic", "linear")
    assert not [record for record in caplog.records if record.levelname != "INFO"]
    assert set(sequence_mixer.AUTO_KERNELS) <= PRESETS.keys()


@pytest.mark.gpu
@pytest.mark.parametrize("heads", [2, 8])
@pytest.mark.parametrize("name", list(KERNELS))
def test_kernel_equals_quadratic_on_a_gpu(name: str, heads: int) -> None:
    if KERNELS[name].absence is not None:
        pytest.skip(f"{name}: {KERNELS[name].absence}")
    sizes = ["model.d_model=64", "model.n_state=64", "model.d_value=64", f"model.n_heads={heads}"]
    for preset in PRESETS[name]:
        made = build_mixer(compose([*f"model={preset}".split(), *sizes])).cuda()
        x = torch.randn(2, 256, 64, device="cuda", requires_grad=True)
        with torch.autocast("cuda", torch.bfloat16):
            weight = torch.randn_like(made(x))
            expected = designs.run(made, "quadratic", x, weight)
            found = designs.run(made, name, x, weight)
        for key, value in found.items():
            error = (value - expected[key]).norm() / expected[key].norm().clamp(min=1e-3)
            assert error <= 3e-2, f"{name}, {preset}, {key}: off by {error:.1e}"
