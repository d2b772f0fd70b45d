from typing import Any

import jaxtyping
import pytest
import torch
from torch.nn.attention import flex_attention as flex

from coefdyn.mixer.backends import ADAPTERS
from coefdyn.mixer.backends.adapter import Adapter
from tests.mixer import references


@pytest.fixture
def stand_in(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a backend that now works on a CPU, its package's plain functions in it."""
    name: str = request.param
    kernel = ADAPTERS[name]

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
    monkeypatch.setattr(type(kernel), "needs_half", Adapter.needs_half)
    monkeypatch.setattr(type(kernel), "needs_trial", lambda *_: False)  # has tests of its own
    monkeypatch.setitem(kernel.__dict__, "absence", None)
    return name
