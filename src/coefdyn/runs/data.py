"""What a run trains on and is measured by: examples of a task, or the blocks of a text."""

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
    """`looked_at` are the splits that are looked at between epochs; `stop_at` reads the last."""

    looked_at: tuple[str, ...]

    def training_batches(
        self,
        size: int,
        device: torch.device,
        seed: int,
        parts: int = 1,
        processes: Processes = ALONE,
    ) -> Resumable:
        """`size` sequences a step, all processes and parts together."""
        ...

    def test_batches(
        self, size: int, device: torch.device, processes: Processes = ALONE
    ) -> list[Batches] | list[BlockBatches]:
        """Of each split that is looked at."""
        ...

    def sample(self, count: int) -> Int64[ndarray, "b t"]:
        """Test inputs, for a look at the coefficients."""
        ...

    def metrics(self, run: Progress, module: Training, chance: float) -> dict[str, float | None]:
        """Of one of the runs that `module` has trained."""
        ...

    def levels(self) -> dict[str, float]:
        """Accuracies to compare with: chance, order_free (counting tokens), ceiling (the best that
        can be learned)."""
        ...

    def digests(self) -> dict[str, str]: ...


def data_of(task: Task, section: Mapping[str, Any], validate: bool = False) -> Data:
    """`section` is the configuration's `task`; `validate`: something is selected between epochs."""
    if isinstance(task, Wikitext):
        return TextData(task)
    seed, source = section.get("seed"), section.get("source")
    splits: tuple[Split, ...] = ("train", "test", *(("validation",) if validate else ()))
    train, *others = (load(task, split, seed, source) for split in splits)
    return ExampleData(task, train, *others)


class ExampleData:
    """The test set is looked at between epochs, and nothing is selected by it: `stop_at` reads
    a validation set of its own."""

    def __init__(
        self, task: Task, train: Examples, test: Examples, validation: Examples | None = None
    ) -> None:
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
                "batches of this task are small, and scripts/sweep.py does several runs at a time"
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
        """The last test; the best beside it. A run that never had a finite test is at chance."""
        history = run.history
        tests = [row for row in history if "test/accuracy" in row]
        last: Row = tests[-1] if tests else {}
        return {
            "test/accuracy": last.get("test/accuracy", chance),
            "test/accuracy_macro": last.get("test/accuracy_macro", chance),
            "test/accuracy_best": max((row["test/accuracy"] for row in tests), default=chance),
            "test/loss": last.get("test/loss"),
            "train/loss": history[-1]["train/loss"] if history else None,
        }

    def levels(self) -> dict[str, float]:
        task = self.task
        return {
            "chance": task.chance,
            "order_free": order_free(task),
            "ceiling": task.ceiling(self.train, self.test),
        }

    def digests(self) -> dict[str, str]:
        """Which data it was, whatever the source."""
        return {"train": _digest(self.train), "test": _digest(self.test)}


def _digest(examples: Examples) -> str:
    digest = hashlib.sha256()
    for side in examples:
        digest.update(side.tobytes())
    return digest.hexdigest()[:16]


def _exp(value: float) -> float | None:
    """None where no number is large enough."""
    return math.exp(value) if value < 700 else None


class TextData:
    """The validation split is looked at between epochs, the test split once, at the end."""

    looked_at: tuple[str, ...] = ("validation",)

    def __init__(self, task: Wikitext) -> None:
        self.task = task
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
        """Perplexity is exp(total negative log-likelihood / tokens) over the whole split; per word,
        the same total is shared by the words of the text."""
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
        found: dict[str, float | None] = {**test, "test/accuracy_best": test["test/accuracy"]}
        found["train/loss"] = history[-1]["train/loss"]
        found["validation/loss"] = looks[-1]["validation/loss"]
        for split in ("validation", "test"):
            loss, sidecar = found[f"{split}/loss"], self.sidecars[split]
            assert loss is not None
            per_word = loss * (sidecar.tokens - 1) / sidecar.words
            found[f"{split}/perplexity"] = _exp(loss)
            found[f"{split}/perplexity_word"] = _exp(per_word)
        return found

    def levels(self) -> dict[str, float]:
        """Of text nobody has counted more than its vocabulary."""
        return {"chance": self.task.chance, "order_free": self.task.chance, "ceiling": 1.0}

    def digests(self) -> dict[str, str]:
        return {split: sidecar.sha256[:16] for split, sidecar in self.sidecars.items()}
