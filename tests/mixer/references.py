"""The packages' own plain functions in place of their kernels, called by the kernels' signatures.

They are read from the packages' files one by one: importing the packages needs a GPU's compiler.
flash-linear-attention is installed with the tests, the others are fetched by `make references`.
"""

import ast
import importlib.util
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from torch import Tensor

FETCHED = Path(__file__).parents[2] / ".references"


def fla_folder() -> Path:
    """Where flash-linear-attention keeps its operations."""
    spec = importlib.util.find_spec("fla")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    return Path(spec.submodule_search_locations[0]) / "ops"


def fla_kernels() -> Any:
    ops = fla_folder()
    linear, simple, gla, delta, gated, dplr = (
        module_at(ops / folder / "naive.py")
        for folder in (
            "linear_attn",
            "simple_gla",
            "gla",
            "delta_rule",
            "gated_delta_rule",
            "generalized_delta_rule/dplr",
        )
    )

    def decays(q: Tensor, k: Tensor, v: Tensor, g: Tensor, scale: float) -> Any:
        return gla.naive_recurrent_gla(_undo_scale(q, scale), k, v, g)

    def rule(q: Tensor, k: Tensor, v: Tensor, beta: Tensor, scale: float) -> Any:
        parts = (_undo_scale(q, scale), k, v, beta)
        y, state = delta.delta_rule_recurrence(*(x.transpose(1, 2) for x in parts))
        return y.transpose(1, 2), state

    def rank_one(
        q: Tensor, k: Tensor, v: Tensor, a: Tensor, b: Tensor, gk: Tensor, scale: float
    ) -> Any:
        parts = (_undo_scale(q, scale), k, v, a, b, gk)
        y, state = dplr.dplr_recurrence(*(x.transpose(1, 2) for x in parts))
        return y.transpose(1, 2), state

    return SimpleNamespace(
        linear=_by_signature(
            ops / "linear_attn/chunk.py", "chunk_linear_attn", linear.naive_recurrent_linear_attn
        ),
        decay=_by_signature(
            ops / "simple_gla/chunk.py", "chunk_simple_gla", simple.naive_recurrent_simple_gla
        ),
        decays=_by_signature(ops / "gla/chunk.py", "chunk_gla", decays),
        delta=_by_signature(ops / "delta_rule/chunk.py", "chunk_delta_rule", rule),
        gated_delta=_by_signature(
            ops / "gated_delta_rule/chunk.py",
            "chunk_gated_delta_rule",
            gated.naive_recurrent_gated_delta_rule,
        ),
        rank_one=_by_signature(
            ops / "generalized_delta_rule/dplr/chunk.py", "chunk_dplr_delta_rule", rank_one
        ),
    )


def mamba_ssm_scan(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Tensor]:
    root = _fetched("mamba_ssm")
    kernel = "mamba_ssm.ops.triton.ssd_combined"
    absent = ModuleType(kernel)
    absent.mamba_chunk_scan_combined = None  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, kernel, absent)
    for parent in ("mamba_ssm", "mamba_ssm.ops", "mamba_ssm.ops.triton"):
        monkeypatch.setitem(sys.modules, parent, ModuleType(parent))
    minimal = module_at(root / "modules/ssd_minimal.py")

    def scan(x: Tensor, dt: Tensor, A: Tensor, B: Tensor, C: Tensor, chunk_size: int) -> Tensor:
        # As the package compares them itself; how long chunks are changes nothing.
        assert chunk_size > 1
        return minimal.ssd_minimal_discrete(x * dt.unsqueeze(-1), A * dt, B, C, block_len=4)[0]

    return _by_signature(root / "ops/triton/ssd_combined.py", "mamba_chunk_scan_combined", scan)


def flash_attn_function(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Tensor]:
    root = _fetched("flash_attn")
    padding = ModuleType("flash_attn.bert_padding")
    padding.pad_input = padding.unpad_input = None  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "flash_attn", ModuleType("flash_attn"))
    monkeypatch.setitem(sys.modules, "flash_attn.bert_padding", padding)
    testing = module_at(root / "utils/testing.py")

    def attend(q: Tensor, k: Tensor, v: Tensor, softmax_scale: float, causal: bool) -> Tensor:
        q = _undo_scale(q, softmax_scale)
        return testing.attention_ref(q, k, v, causal=causal, upcast=False)[0]

    return _by_signature(root / "flash_attn_interface.py", "flash_attn_func", attend)


def _fetched(package: str) -> Path:
    found = sorted(FETCHED.glob(f"{package}-*/{package}"))
    if not found:
        pytest.skip(f"the sources of {package} are not here: `make references` fetches them")
    return found[-1]


def _undo_scale(q: Tensor, scale: float) -> Tensor:
    """For functions that always divide scores by the root of the width."""
    return q * scale * q.shape[-1] ** 0.5


def module_at(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"reference_{path.parent.name}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _by_signature(path: Path, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, given arguments by name as the kernel `name` in that file takes them."""
    tree = ast.parse(path.read_text())
    (found,) = (x for x in tree.body if isinstance(x, ast.FunctionDef) and x.name == name)
    plain = inspect.Parameter.POSITIONAL_OR_KEYWORD
    signature = inspect.Signature([
        inspect.Parameter(argument.arg, plain) for argument in found.args.args
    ])  # fmt: skip
    taken = inspect.signature(function).parameters
    ignored = {"normalize": False}  # what only the kernel has, and its one value that will do

    def call(*args: Any, **kwargs: Any) -> Any:
        named = signature.bind_partial(*args, **kwargs).arguments
        for key in named.keys() - taken.keys():
            assert ignored[key] == named[key]
        return function(**{key: value for key, value in named.items() if key in taken})

    return call
