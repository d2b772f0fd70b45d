"""A model scores the same on our data and on that of the original benchmark's own code.

PYTHONPATH=<its checkout, github.com/athms/mad-lab> pytest -m slow -k original_s_data -s
"""

import importlib.util
import warnings
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from coefdyn.config.compose import compose
from coefdyn.runs.run import run_one

SEEDS = range(4)
SHORT = {"memorization": 20, "compression": 20}  # epochs: some way from the ceiling


def accuracies(task: str, source: str, results: Path) -> list[float]:
    """Of softmax attention at lite, a number per seed."""
    scores = []
    for seed in SEEDS:
        choices = [f"task={task}", "model=softmax_attention", "scale=lite", f"seed={seed}"]
        settings = [f"task.source={source}", f"trainer.max_epochs={SHORT[task]}"]
        record = run_one(compose([*choices, *settings, f"paths.results={results}"]))
        assert record.metrics["test/accuracy"] is not None
        assert record.metrics["test/accuracy"] > 2 * record.chance
        scores.append(record.metrics["test/accuracy"])
    return scores


@pytest.mark.slow
@pytest.mark.skipif(
    importlib.util.find_spec("mad") is None,
    reason="needs a checkout of the original benchmark on PYTHONPATH",
)
@pytest.mark.parametrize("task", list(SHORT))
def test_scores_on_the_original_s_data_are_within_the_spread_of_seeds(
    task: str, tmp_path: Path
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what the original imports
        importlib.import_module("mad.data.instances")
    ours, theirs = (accuracies(task, source, tmp_path) for source in ("native", "mad_lab"))
    spread = float(np.sqrt(np.var(ours, ddof=1) + np.var(theirs, ddof=1)) / len(SEEDS) ** 0.5)
    reach = spread * stats.t.ppf(0.995, 2 * len(SEEDS) - 2)
    difference = float(np.mean(ours) - np.mean(theirs))
    print(f"{task}: ours {ours}, theirs {theirs}, {difference:+.4f} within {reach:.4f}")
    assert abs(difference) <= reach
    assert reach < 0.1, "seeds differ too much to tell anything"
