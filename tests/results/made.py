"""Runs and records written by hand: every number is known, and nothing is composed or trained."""

from typing import Any

from coefdyn.config.grid import PlannedRun
from coefdyn.runs.record import Record

SLOTS = {"evolution": "scalar_gla", "scaling": "one", "readout": "exp", "normalization": "power",
         "block": "mamba", "preprocess": "convolution", "position": "none"}  # fmt: skip


def planned(
    run_id: str,
    lr: float = 1e-3,
    weight_decay: float = 0.1,
    seed: int = 0,
    seq_len: int = 8,
    point: tuple[str, ...] = (),
    model: dict[str, Any] | None = None,
    **more: Any,
) -> PlannedRun:
    """`point`: what the grid says of it; `model` and `more`: other values of its configuration."""
    values = {
        "model": {"n_state": 24, "n_heads": 3, "block": {"post_norm": "all"}, **(model or {})},
        "task": {"seq_len": seq_len},
        "seed": seed,
        "optimizer": {"lr": lr, "weight_decay": weight_decay},
        **more,
    }
    slots = {f"model/{slot}": choice for slot, choice in SLOTS.items()}
    choices = {"scale": "smoke", "task": "noisy_recall", "model": "gla", **slots}
    return PlannedRun(run_id, point, values, choices)


INITIAL = ("near_zero", "near_zero_raw", "near_zero_relative", "score_variance")


def recorded(run_id: str, accuracy: float, **changes: Any) -> Record:
    """A finished run; all else that is measured is this accuracy times a number of its own."""
    metrics = {"accuracy": 1, "accuracy_macro": 2, "accuracy_best": 3, "loss": 4, "perplexity": 5,
               "perplexity_word": 6}  # fmt: skip
    statistics: dict[str, Any] = {
        "near_zero": 8, "near_one": 9, "ratio": 10, "near_zero_raw": 11, "near_one_raw": 12,
        "ratio_raw": 13, "near_zero_relative": 14, "entropy": 15, "score_variance": 16,
        "effective_rank": 17, "guarded_rows": 18, "most_zeros": 19,
    }  # fmt: skip
    statistics = {name: times * accuracy for name, times in statistics.items()}
    # Two layers of two heads: the most is neither in the first of them nor at its last step.
    zeros = [[[0.0, 1.0], [2.0, 0.0]], [[9.0 * accuracy, 0.5], [0.0, 0.25]]]
    statistics["per_head"] = {"zeros_per_index": zeros}
    values: dict[str, Any] = {
        "schema": 2,
        "run_id": run_id,
        "status": "finished",
        "diverged_at_step": None,
        "metrics": {f"test/{name}": times * accuracy for name, times in metrics.items()}
        | {"validation/perplexity": 7 * accuracy},
        "coefficients": statistics,
        "initial": {name: times * accuracy for times, name in enumerate(INITIAL, 20)},
        "epochs": 2,
        "steps": 4,
        "chance": 0.125,
        "order_free": 0.25,
        "ceiling": 1.0,
        "config": {},
        "choices": {},
        "backend": [],
        "parameters": 1000,
        "data": {},
        "history": {"epoch": [1, 2], "step": [2, 4]},
        "population": None,
        "seconds": {"session": 90.0},
        "git": {"commit": "a" * 40, "dirty": False},
        "versions": {"torch": "2"},
        "device": {"type": "cpu", "name": "x", "kind": "y", "threads": 1},
        "earlier_sessions": [],
    }
    return Record(**(values | changes))


def diverged(run_id: str, accuracy: float) -> Record:
    changes = {"status": "diverged", "diverged_at_step": 7, "coefficients": None}
    return recorded(run_id, accuracy, **changes)
