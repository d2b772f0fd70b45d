"""Training on the original benchmark's own data ends where training on ours does.

Needs its checkout, github.com/athms/mad-lab, on PYTHONPATH.
"""

import importlib.util
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import ttest_ind

import coefdyn

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("mad") is None, reason="mad-lab is not there"),
]
SEEDS = 4


@pytest.mark.parametrize("task", ["in_context_recall", "memorization"])
def test_scores_on_both_data_agree_within_the_spread_of_seeds(task: str, tmp_path: Path) -> None:
    scores = {
        source: [
            coefdyn.train(
                f"task={task}", "model=softmax_attention", "scale=lite", f"seed={seed}",
                f"task.source={source}", "trainer.devices.threads=1", results=tmp_path,
            ).record.metrics["test/accuracy"]
            for seed in range(SEEDS)
        ]
        for source in ("native", "mad_lab")
    }  # fmt: skip
    ours, theirs = (np.array(scores[source]) for source in ("native", "mad_lab"))
    assert min(ours.mean(), theirs.mean()) > 0.3, scores  # learned, far above chance
    close = abs(ours.mean() - theirs.mean()) < 0.02
    assert close or ttest_ind(ours, theirs, equal_var=False).pvalue > 0.05, scores
