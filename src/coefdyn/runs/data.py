"""The data that a run trains and is tested on: examples of a task, or blocks of a text."""

import hashlib
import math
from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Int64
from numpy import arange, ndarray

from coefdyn.runs.batches import (
    Batches,
    BlockBatches,
    Resumable,
    ShuffledBatches,
    StreamBatches,
)
from coefdyn.runs.final_tests import FinalTests, final_metrics, final_tests, refuse_for_text
from coefdyn.runs.loop import Training
from coefdyn.runs.processes import ALONE, Processes
from coefdyn.runs.progress import Progress
from coefdyn.runs.record import Row
from coefdyn.tasks.order_free import order_free
from coefdyn.tasks.source import load
from coefdyn.tasks.task import Examples, Split, Task
from coefdyn.tasks.text.corpus import Sidecar
from coefdyn.tasks.text.wikitext import Blocks, Wikitext


@runtime_checkable
class Data(Protocol):
    """`looked_at` are the splits that are tested between epochs. `stop_at` uses the last one.

    `final_tests` are tested once, after the training.
    """

    looked_at: tuple[str, ...]
    final_tests: FinalTests

    def training_batches(
        self,
        size: int,
        device: torch.device,
        seed: int,
        parts: int = 1,
        processes: Processes = ALONE,
    ) -> Resumable:
        """Batches of `size` sequences a step, over all processes and parts together."""
        ...

    def test_batches(
        self, size: int, device: torch.device, processes: Processes = ALONE
    ) -> list[Batches] | list[BlockBatches]:
        """The batches of each split in `looked_at`."""
        ...

    def sample(self, count: int) -> Int64[ndarray, "b t"]:
        """The first `count` test inputs, for statistics of the coefficients."""
        ...

    def metrics(self, run: Progress, module: Training, chance: float) -> dict[str, float | None]:
        """The final metrics of one of the runs that `module` has trained."""
        ...

    def levels(self) -> dict[str, float]:
        """Accuracies to compare with.

        chance is that of guessing, order_free that of counting tokens, and ceiling the best that
        can be learned.
        """
        ...

    def digests(self) -> dict[str, str]:
        """A digest of the data, by split."""
        ...


def data_of(task: Task, section: Mapping[str, Any], validate: bool = False) -> Data:
    """The data of a task. `section` is its configuration; `validate` adds a validation set."""
    if isinstance(task, Wikitext):
        refuse_for_text(section)
        return TextData(task)
    seed, source = section.get("seed"), section.get("source")
    splits: tuple[Split, ...] = ("train", "test", *(("validation",) if validate else ()))
    examples = {split: load(task, split, seed, source) for split in splits}
    final = final_tests(task, examples["test"], section)
    return ExampleData(task, examples["train"], examples["test"], examples.get("validation"), final)


class ExampleData:
    """Examples of a task. They are tested between epochs, but nothing is selected by the test.

    `stop_at` uses a separate validation set.
    """

    def __init__(
        self,
        task: Task,
        train: Examples,
        test: Examples,
        validation: Examples | None = None,
        final_tests: FinalTests | None = None,
    ) -> None:
        self.final_tests: FinalTests = final_tests or {}
        self.task, self.train, self.test, self.validation = task, train, test, validation
        self.looked_at: tuple[str, ...] = ("test",)
        if validation is not None:
            self.looked_at = ("test", "validation")

    def training_batches(
        self,
        size: int,
        device: torch.device,
        seed: int,
        parts: int = 1,
        processes: Processes = ALONE,
    ) -> Resumable:
        if parts != 1:
            raise ValueError(
                f"trainer.devices.accumulate={parts} is for text; batches of this task are small"
            )
        if processes.world != 1:
            raise ValueError(
                f"trainer.devices.strategy=ddp with {processes.world} processes is for text; "
                "batches of this task are small, and coefdyn sweep does several runs at a time"
            )
        return ShuffledBatches(self.train, size, device, seed)

    def test_batches(
        self, size: int, device: torch.device, processes: Processes = ALONE
    ) -> list[Batches]:
        splits = (self.test,) if self.validation is None else (self.test, self.validation)
        return [Batches(examples, size, device) for examples in splits]

    def sample(self, count: int) -> Int64[ndarray, "b t"]:
        return self.test.inputs[:count]

    def metrics(self, run: Progress, module: Training, chance: float) -> dict[str, float | None]:
        """The metrics of the last test, and the best accuracy. Without a finite test: chance."""
        history = run.history
        tests = [row for row in history if "test/accuracy" in row]
        last: Row = tests[-1] if tests else {}
        return {
            "test/accuracy": last.get("test/accuracy", chance),
            "test/accuracy_macro": last.get("test/accuracy_macro", chance),
            "test/accuracy_best": max((row["test/accuracy"] for row in tests), default=chance),
            "test/loss": last.get("test/loss"),
            "train/loss": history[-1]["train/loss"] if history else None,
            **final_metrics(run, module, self.final_tests),
        }

    def levels(self) -> dict[str, float]:
        task = self.task
        return {
            "chance": task.chance,
            "order_free": order_free(task),
            "ceiling": task.ceiling(self.train, self.test),
        }

    def digests(self) -> dict[str, str]:
        """Digests of the examples themselves, whatever their source."""
        return {"train": _digest(self.train), "test": _digest(self.test)}


def _digest(examples: Examples) -> str:
    digest = hashlib.sha256()
    for side in examples:
        digest.update(side.tobytes())
    return digest.hexdigest()[:16]


def _exp(value: float) -> float | None:
    """e^value, or None where that overflows."""
    return math.exp(value) if value < 700 else None


class TextData:
    """Blocks of a text. Validation is tested between epochs, the test split once, at the end."""

    looked_at: tuple[str, ...] = ("validation",)

    def __init__(self, task: Wikitext) -> None:
        self.task = task
        self.final_tests: FinalTests = {}
        self.blocks: dict[str, Blocks] = {}
        self.sidecars: dict[str, Sidecar] = {}
        for split in ("train", "validation", "test"):
            self.blocks[split], self.sidecars[split] = task.blocks(split)

    def training_batches(
        self,
        size: int,
        device: torch.device,
        seed: int,
        parts: int = 1,
        processes: Processes = ALONE,
    ) -> Resumable:
        steps = self.task.epoch_steps
        return StreamBatches(self.blocks["train"], size, device, seed, steps, parts, processes)

    def test_batches(
        self, size: int, device: torch.device, processes: Processes = ALONE
    ) -> list[BlockBatches]:
        return [BlockBatches(self.blocks["validation"], size, device, processes)]

    def sample(self, count: int) -> Int64[ndarray, "b t"]:
        return self.blocks["test"].take(arange(min(count, len(self.blocks["test"])))).inputs

    def metrics(self, run: Progress, module: Training, chance: float) -> dict[str, float | None]:
        """The metrics of the validation and test splits.

        Perplexity is exp(total negative log-likelihood / tokens) over the whole split. Per word,
        the same total is divided by the number of words.
        """
        history = run.history
        looks = [row for row in history if "validation/loss" in row]
        if run.diverged_at is not None or not looks:
            last: Row = looks[-1] if looks else {}
            return {"test/accuracy": chance, "test/accuracy_macro": chance,
                    "test/accuracy_best": chance, "test/loss": None, "test/perplexity": None,
                    "train/loss": history[-1]["train/loss"] if history else None,
                    "validation/loss": last.get("validation/loss"),
                    "validation/perplexity": None}  # fmt: skip
        batches = BlockBatches(self.blocks["test"], 8, module.device, module.processes)
        test = module.look_at("test", batches)
        metrics: dict[str, float | None] = {**test, "test/accuracy_best": test["test/accuracy"]}
        metrics["train/loss"] = history[-1]["train/loss"]
        metrics["validation/loss"] = looks[-1]["validation/loss"]
        for split in ("validation", "test"):
            loss, sidecar = metrics[f"{split}/loss"], self.sidecars[split]
            assert loss is not None
            per_word = loss * (sidecar.tokens - 1) / sidecar.words
            metrics[f"{split}/perplexity"] = _exp(loss)
            metrics[f"{split}/perplexity_word"] = _exp(per_word)
        return metrics

    def levels(self) -> dict[str, float]:
        """For text only chance is known: the other levels are chance and 1."""
        return {"chance": self.task.chance, "order_free": self.task.chance, "ceiling": 1.0}

    def digests(self) -> dict[str, str]:
        return {split: sidecar.sha256[:16] for split, sidecar in self.sidecars.items()}
