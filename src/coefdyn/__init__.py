"""Sequence models as points (A_t, b_j, phi, eta) of one design space, built, trained and compared.

    mixer = coefdyn.build_mixer("gla", d_model=64, n_heads=4, readout="relu")
    model = coefdyn.build_model("mamba2", vocab_size=32, max_length=128, d_model=64, n_heads=4)
    run = coefdyn.train("model=gla", "task=noisy_recall", "scale=smoke", results="results")
    run = coefdyn.load_run("results/runs/<run_id>")  # .record .config .history .model() ...
    runs = coefdyn.load_runs("results")  # a DataFrame, a row per run
    print(coefdyn.check_design("model=gla", "model/scaling=one"))

`coefdyn.testing` has the contract tests for slots and tasks of your own, `coefdyn.plot` pictures of
your own runs. Importing coefdyn loads neither torch nor Lightning.
"""

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"

if TYPE_CHECKING:
    from coefdyn.api import build_mixer, build_model, check_design, train
    from coefdyn.results.load import load_run, load_runs

__all__ = ["build_mixer", "build_model", "check_design", "load_run", "load_runs", "train"]


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__, "plot", "testing"])


def __getattr__(name: str) -> Any:
    if name in ("load_run", "load_runs"):
        return getattr(importlib.import_module("coefdyn.results.load"), name)
    if name in __all__:
        return getattr(importlib.import_module("coefdyn.api"), name)
    if name in ("plot", "testing"):
        return importlib.import_module(f"coefdyn.{name}")
    raise AttributeError(f"module 'coefdyn' has no attribute {name!r}")
