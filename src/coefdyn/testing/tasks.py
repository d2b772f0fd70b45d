"""Check that a task's examples are valid and a pure function of (settings, split, seed)."""

import numpy as np

from coefdyn.tasks.task import IGNORE, Task


def check_task(task: Task, seed: int = 5) -> None:
    """Raise AssertionError with what does not hold."""
    name, counts = type(task).__name__, {"train": task.num_train, "test": task.num_test}
    for split, count in counts.items():
        examples, repetition = task.generate(split, seed), task.generate(split, seed)  # type: ignore[arg-type]
        for side, repeated in zip(examples, repetition, strict=True):
            assert np.array_equal(side, repeated), f"{name}: the same seed gives other {split} data"
            assert side.dtype == np.int64, f"{name}: {split} data are {side.dtype}, not int64"
            shape = (count, task.length)
            assert side.shape == shape, f"{name}: {split} data are {side.shape}, not {shape}"
        inputs, targets = examples
        assert 0 <= inputs.min() <= inputs.max() < task.vocab_size, f"{name}: tokens out of range"
        scored = targets[targets != IGNORE]
        assert len(scored), f"{name}: no target of the {split} split is scored"
        assert 0 <= scored.min() <= scored.max() < task.vocab_size, f"{name}: targets out of range"
        unscored = (targets == IGNORE).all(1).sum()
        assert not unscored, f"{name}: {unscored} {split} sequences have no scored target"
    other = task.generate("train", seed + 1)
    assert not np.array_equal(task.generate("train", seed).inputs, other.inputs), (
        f"{name}: another seed gives the same data"
    )
    assert 0 < task.chance < 1, f"{name}.chance={task.chance} must lie between 0 and 1"
