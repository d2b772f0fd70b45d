"""Golden curves: the losses of twenty steps of every preset on every task, in float64.

They are what the project computed when they were written. `python -m tests.golden` writes them
anew: only for a change that is meant to move numbers, which the CHANGELOG then marks [results].
"""

import hashlib
import json
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

from coefdyn.config.build import build_model, build_optimizer, build_task
from coefdyn.config.compose import compose
from coefdyn.config.plugins import options
from coefdyn.runs.data import data_of
from coefdyn.runs.progress import cosine
from coefdyn.tasks.task import IGNORE
from tests.config.paper import VARIANTS

LOSSES = Path(__file__).parent / "assets" / "losses.json"
STEPS = 20
VOCABULARY = 64  # of the made-up text


def losses(preset: str, task: str, data: Path) -> list[float]:
    """Training losses of the first steps at scale=smoke, by the linear form where there is one."""
    overrides = [f"model={preset}", f"task={task}", "scale=smoke", f"paths.data={data}"]
    if task == "wikitext103":
        overrides.append(f"task.vocab_size={VOCABULARY}")
    config = compose(overrides)
    batches = data_of(build_task(config), config.settings.task).training_batches(
        config.settings.trainer.batch_size, torch.device("cpu"), config.settings.seed
    )
    # Drawn in float64 too: logarithms in float32 are rounded by kind of processor, and AdamW
    # makes 1e-4 of that within twenty steps.
    with float64():
        model = build_model(config)
    assert all(weight.dtype == torch.float64 for weight in model.parameters())
    for block in model.blocks:
        linear = block.mixer.design.recurrence_obstacle is None
        block.mixer.backend = "linear" if linear else "quadratic"
    optimizer = build_optimizer(config, model.parameters())
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, partial(cosine, STEPS, 2))
    found = []
    while len(found) < STEPS:
        for inputs, targets in batches:
            loss = F.cross_entropy(
                model(inputs).flatten(0, 1), targets.flatten(), ignore_index=IGNORE
            )
            found.append(loss.item())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
        batches.set_epoch(batches.epoch + 1)
    return found[:STEPS]


@contextmanager
def float64() -> Iterator[None]:
    """Tensors that are made here are in float64."""
    usual = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(usual)


def text(directory: Path) -> Path:
    """Prepared text of random tokens, where task=wikitext103 scale=smoke looks for it."""
    place = directory / "smoke"
    place.mkdir()
    rng = np.random.default_rng(0)
    for split in ("train", "validation", "test"):
        tokens = rng.integers(VOCABULARY, size=400).astype(np.uint16)
        (place / f"{split}.bin").write_bytes(tokens.tobytes())
        about = {"source": "made up", "sha256": hashlib.sha256(tokens.tobytes()).hexdigest()}
        about |= {"tokenizer": "none", "convention": "none"}
        numbers = {"vocab_size": VOCABULARY, "tokens": len(tokens), "words": len(tokens)}
        (place / f"{split}.json").write_text(json.dumps(about | numbers))
    return directory


def cases() -> Iterator[tuple[str, str]]:
    tasks = [task for task in options("task") if task not in VARIANTS]
    return ((preset, task) for preset in options("model") for task in tasks)


def main() -> int:
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as directory:
        data = text(Path(directory))
        curves = {}
        for preset, task in cases():
            curves.setdefault(preset, {})[task] = losses(preset, task, data)
            print(preset, task, curves[preset][task][-1], file=sys.stderr)
    LOSSES.write_text(json.dumps(curves, indent=0) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
