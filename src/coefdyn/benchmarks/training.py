"""suite=training: training steps against a bare loop, and what a run costs besides its steps."""

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import Callback
from torch import nn

from coefdyn.benchmarks.measure import Result, Run, interleaved_medians, result, result_of_pairs
from coefdyn.config.build import build_model, build_optimizer
from coefdyn.config.compose import Config, compose
from coefdyn.mixer.compiled.kernels import without_kernels
from coefdyn.model.model import SequenceModel
from coefdyn.paper.looks import TABLE_1
from coefdyn.runs.batches import Resumable
from coefdyn.runs.checkpoint import KeepProgress, RunFiles
from coefdyn.runs.learner import Alone
from coefdyn.runs.loop import Training
from coefdyn.runs.progress import Progress, cosine
from coefdyn.runs.record import read_record
from coefdyn.runs.setup import set_up
from coefdyn.runs.trainer import lightning_trainer
from coefdyn.tasks.task import IGNORE

SUITE = "training"
OVERHEAD_BAR = 3.0  # seconds


def run(repeats: int) -> Iterator[Result]:
    repeats = max(10, repeats)
    yield throughput("lite", [], repeats, bar=1.15)
    yield throughput("paper", ["task.num_train=1280"], repeats, bar=1.03)
    for name, bar in (("softmax_attention", 0.7), ("gla", 0.35), ("deltanet", 0.4),
                      ("gated_deltanet", 0.4)):  # fmt: skip
        yield from steps(name, "lite", 1, repeats, bar, None)
    bars = {"softmax_attention": 0.8, "gla": 0.5, "deltanet": 0.5, "gated_deltanet": 0.5}
    for name in TABLE_1:
        share = 0.55 if name == "softmax_attention" else 0.45
        threads = torch.get_num_threads()
        yield from steps(name, "paper", threads, repeats // 2, bars.get(name, 1.0), share)
    yield overhead("smoke", [])
    yield overhead("lite", [])
    yield overhead("paper", ["task=fuzzy_recall", "trainer.max_epochs=1", "trainer.batch_size=512"])


def throughput(scale: str, changes: list[str], repeats: int, bar: float) -> Result:
    """Time of a step in a run, checkpoints and metrics file included, against a bare loop."""
    epochs = ["trainer.max_epochs=" + str(repeats + 2), f"trainer.test_every={repeats + 2}"]
    config = compose([f"scale={scale}", *changes, *epochs])
    prepared = set_up(config)
    settings, device = prepared.trainer, torch.device("cpu")
    batches = partial(prepared.data.training_batches, settings.batch_size, device, 0)
    vocab_size = config.settings.model.vocab_size
    module = Training(
        Alone(prepared.model, vocab_size),
        [Progress("benchmark", [])],
        vocab_size=vocab_size,
        make_optimizer=partial(build_optimizer, config),
        total_steps=settings.max_epochs * len(batches()),
        trainer=settings,
    )
    alternate = Alternate(bare_steps(config, batches(), module.total_steps))
    with tempfile.TemporaryDirectory() as directory:
        places = [Path(directory)]
        keep = KeepProgress(places, settings.checkpoint_seconds)
        trainer = lightning_trainer(
            settings, [keep, alternate], RunFiles(places, module), places[0]
        )
        trainer.fit(module, batches())
    ours, bare = (
        # The first epoch warms up; the last lacks what comes after its last step.
        [1e3 * seconds / len(batches()) for seconds in times[1:-1]]
        for times in (alternate.ours, alternate.bare)
    )
    case = f"step of a run at scale={scale}, against a bare loop"
    return result_of_pairs(SUITE, case, ours, "ms", bare, bar)


def steps(
    name: str, scale: str, threads: int, repeats: int, bar: float, share: float | None
) -> Iterator[Result]:
    """A step with compiled loops against one without, and against its matrix products alone.

    `share`: the least part of the step's time that the products must take.
    """
    threads_before = torch.get_num_threads()
    overrides = [f"model={name}", f"scale={scale}", "task=noisy_recall", "task.num_train=256"]
    config = compose([*overrides, f"trainer.devices.threads={threads}"])
    prepared = set_up(config)
    size = prepared.trainer.batch_size
    batches = partial(prepared.data.training_batches, size, torch.device("cpu"), 0)
    loops, tensors = (bare_steps(config, batches(), 1000) for _ in range(2))

    def without_loops() -> None:
        with without_kernels():
            next(tensors)

    products = matrix_products(prepared.model, size * prepared.task.length)
    cases: dict[str, Run] = {
        "loops": lambda: next(loops), "tensors": without_loops, "products": products,
    }  # fmt: skip
    medians = interleaved_medians(cases, repeats)
    torch.set_num_threads(threads_before)
    case = f"step of {name} at scale={scale}, {threads} threads"
    yield result(SUITE, f"{case}, against tensor forms", medians["loops"], "ms",
                 medians["tensors"], bar)  # fmt: skip
    if share is not None:
        yield result(SUITE, f"{case}, against its matrix products", medians["loops"], "ms",
                     medians["products"], 1 / share)  # fmt: skip


def matrix_products(model: SequenceModel, tokens: int) -> Callable[[], None]:
    """The matrix products of all linear layers, forward and backward, and nothing else."""
    layers = [layer for layer in model.modules() if isinstance(layer, nn.Linear)]
    operands = [
        (torch.randn(tokens, x.in_features), x.weight.detach(), torch.randn(tokens, x.out_features))
        for x in layers
    ]

    def run() -> None:
        for x, weight, grad in operands:
            _ = x @ weight.mT, grad @ weight, grad.mT @ x

    return run


def bare_steps(config: Config, batches: Resumable, steps: int) -> Iterator[None]:
    """The training of a run in plain PyTorch; each `next` does one step."""
    model = build_model(config)
    optimizer = build_optimizer(config, model.parameters())
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, partial(cosine, steps, 0))
    while True:
        for inputs, targets in batches:
            optimizer.zero_grad()
            logits = model(inputs)
            F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORE).backward()
            optimizer.step()
            schedule.step()
            yield


class Alternate(Callback):
    """Does a step of something else before each step of a run, so that slow phases of the machine
    hit both. `ours` and `bare` are the seconds of both per epoch. Those of the run include all that
    it does between epochs."""

    def __init__(self, other: Iterator[None]) -> None:
        self.other = other
        self.ours: list[float] = []
        self.bare: list[float] = []
        self.last: float | None = None

    def on_train_batch_start(
        self, trainer: Trainer, module: LightningModule, batch: Any, index: int
    ) -> None:
        now = time.perf_counter()
        if self.last is not None:
            self.ours[-1] += now - self.last
        if index == 0:
            self.ours.append(0.0)
            self.bare.append(0.0)
            now = time.perf_counter()
        next(self.other)
        self.last = time.perf_counter()
        self.bare[-1] += self.last - now


def overhead(scale: str, changes: list[str]) -> Result:
    """Seconds of a train.py process besides training and the imports of torch and lightning.

    At paper scale testing is left out too: there one test is a thousand sequences.
    """

    def seconds(*arguments: str) -> float:
        start = time.perf_counter()
        subprocess.run([sys.executable, *arguments], check=True, capture_output=True)
        return time.perf_counter() - start

    imports = min(seconds("-c", "import torch, lightning.pytorch") for _ in range(3))
    with tempfile.TemporaryDirectory() as results:
        command = ("-m", "coefdyn", "train")
        total = seconds(*command, f"scale={scale}", *changes, f"paths.results={results}")
        (path,) = Path(results).glob("runs/*/record.json")
        record = read_record(path)
        assert record is not None
    excluded = ["training", "testing"] if scale == "paper" else ["training"]
    spent = total - imports - sum(record.seconds[name] for name in excluded)
    case = f"train.py at scale={scale} besides imports, {', '.join(excluded)}, against 3 s"
    return result(SUITE, case, spent, "s", OVERHEAD_BAR, 1.0)
