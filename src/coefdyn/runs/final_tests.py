"""Tests after training only: at other lengths, and by the gap between a question and its answer.

`task.test_lengths=[128,256]` gives the metrics test/accuracy@128 and test/accuracy@256.
`task.test_gaps=true` gives test/accuracy@gap1, @gap2, @gap4, ...: questions with a gap of 4 to 7
steps count for @gap4. They are of the longest test there is. Nothing of the training depends on
them.
"""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from coefdyn.errors import ConfigError
from coefdyn.model.coefficient_statistics import own_forms
from coefdyn.model.model import SequenceModel
from coefdyn.runs.batches import TEST_TOKENS, Batches
from coefdyn.runs.learner import Alone
from coefdyn.runs.loop import Training
from coefdyn.runs.progress import Progress, Scores
from coefdyn.tasks.source import load
from coefdyn.tasks.task import IGNORE, Examples, Task


@dataclass(frozen=True)
class FinalTest:
    """Examples to test on, and the accuracy that a diverged run gets for them."""

    examples: Examples
    chance: float

    @property
    def length(self) -> int:
        return self.examples.inputs.shape[1]


FinalTests = dict[str, FinalTest]  # by the name of their metric


def final_tests(task: Task, test: Examples, section: Mapping[str, Any]) -> FinalTests:
    """The tests that test_lengths and test_gaps of a task's `section` ask for."""
    lengths, by_gap = section.get("test_lengths"), section.get("test_gaps", False)
    if by_gap not in (True, False):
        raise ConfigError(f"task.test_gaps={by_gap} must be true or false")
    tests = {} if lengths is None else dict(_at_lengths(task, lengths, section))
    longest = max((test, *(t.examples for t in tests.values())), key=lambda e: e.inputs.shape[1])
    return tests | (dict(_by_gap(task, longest)) if by_gap else {})


def refuse_for_text(section: Mapping[str, Any]) -> None:
    """Raise if the configuration of a text asks for tests that only generated data have."""
    for name, unset in (("test_lengths", None), ("test_gaps", False)):
        if (value := section.get(name, unset)) != unset:
            raise ConfigError(
                f"task.{name}={value} is for tasks that are generated, and a text has blocks of "
                f"task.seq_len; leave task.{name} out"
            )


def _at_lengths(
    task: Task, lengths: Any, section: Mapping[str, Any]
) -> Iterator[tuple[str, FinalTest]]:
    where = f"task.test_lengths={lengths}"
    numbers = lengths if isinstance(lengths, list) else []
    valid = all(type(n) is int and n >= 1 for n in numbers) and len(set(numbers)) == len(numbers)
    if not numbers or not valid:
        raise ConfigError(
            f"{where} must be a list of different whole numbers of at least 1, such as [64,128], "
            "or null"
        )
    seed, source = section.get("seed"), section.get("source")
    if Path(str(source)).is_dir():
        raise ConfigError(
            f"{where} needs data that are generated, and the files of task.source={source} have "
            "one length; leave one of the two out"
        )
    for length in numbers:
        try:
            longer = task.at_length(length)
        except ValueError as error:
            raise ConfigError(f"{where} has {length}, but {error}") from error
        examples = load(longer, "test", seed, source)
        yield f"test/accuracy@{length}", FinalTest(examples, longer.chance)


def _by_gap(task: Task, test: Examples) -> Iterator[tuple[str, FinalTest]]:
    """A test for each octave of gaps that occurs, in which only its questions are scored."""
    gaps = task.gaps(test)
    if gaps is None:
        raise ConfigError(
            f"task.test_gaps=true needs a task whose questions have one place that answers them, "
            f"and {type(task).__name__} tells none; leave it out"
        )
    scored = test.targets != IGNORE
    octave = np.where(scored, np.log2(np.maximum(gaps, 1)).astype(np.int64), -1)
    for number in np.unique(octave[scored]).tolist():
        targets = np.where(octave == number, test.targets, IGNORE)
        yield (
            f"test/accuracy@gap{2**number}",
            FinalTest(Examples(test.inputs, targets), task.chance),
        )


def check_positions(model: SequenceModel, tests: FinalTests) -> None:
    """Refuse sequences that are longer than the model has positions for."""
    known = model.position.longest
    for name, test in tests.items():
        if known is not None and test.length > known:
            raise ConfigError(
                f"task.test_lengths asks for {name.rpartition('@')[2]}, but position=learned has "
                f"learned model.max_length={known} places; leave out what is longer, or choose "
                "model/position=sinusoidal or none"
            )


@torch.no_grad()
def final_metrics(run: Progress, module: Training, tests: FinalTests) -> dict[str, float | None]:
    """The accuracy of a run on each test; of one that diverged, chance."""
    if run.diverged_at is not None or not tests:
        return {name: test.chance for name, test in tests.items()}
    started = time.perf_counter()
    row = next(row for row, other in enumerate(module.runs) if other is run)
    model = module.learner.model_of(row).to(module.device).eval()
    with own_forms(model):
        accuracies: dict[str, float | None] = {
            name: _accuracy(model, test, module.vocab_size) for name, test in tests.items()
        }
    run.seconds["testing"] += time.perf_counter() - started
    return accuracies


def _accuracy(model: SequenceModel, test: FinalTest, vocab_size: int) -> float:
    device = next(model.parameters()).device
    scores = Scores(vocab_size, device)
    learner = Alone(model, vocab_size)
    for batch in Batches(test.examples, max(1, TEST_TOKENS // test.length), device):
        learner.test(batch, [0], [scores])
    return float(scores.row("test")["test/accuracy"])
