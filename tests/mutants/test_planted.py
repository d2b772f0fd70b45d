"""Bugs that tests once let pass: each is planted again, and the file that knows better fails."""

from pathlib import Path

import pytest

from tests.mutants.__main__ import ROOT, run, tree

# what is broken: (file, as it stands, as planted, the tests that must notice)
PLANTED = {
    "the auto-encoder reads every step": (
        "src/coefdyn/model/heads.py",
        "x[:, -1:].expand_as(x)",
        "x",
        "tests/model/test_heads.py",
    ),
    "a dead worker's run is lost": (
        "src/coefdyn/sweeps/pool.py",
        "            self.queue.appendleft(share)\n",
        "            pass\n",
        "tests/sweeps/test_pool_turns.py",
    ),
    "a diverged run wins its point": (
        "src/coefdyn/results/tables.py",
        'assign(failed=runs["status"] == "diverged")',
        "assign(failed=False)",
        "tests/results/test_tables.py",
    ),
    "a figure's axes are swapped": (
        "src/coefdyn/paper/principle2.py",
        'axes.plot(row[column], row["accuracy"],',
        'axes.plot(row["accuracy"], row[column],',
        "tests/paper/test_figure_curves.py",
    ),
    "a claim lacks a conjunct": (
        "src/coefdyn/paper/principle3.py",
        '"softplus": Region(high=border),',
        "",
        "tests/paper/test_claim_effects.py",
    ),
    "another learning rate in the paper's grid": (
        "conf/experiment/principle2_readout.yaml",
        'paper: {seed: 0, lr: "1e-4,5e-4,',
        'paper: {seed: 0, lr: "1e-4,2e-4,',
        "tests/config/test_paper_values.py",
    ),
    "test data of one seed are another's training data": (
        "src/coefdyn/tasks/task.py",
        "[seed, STREAMS[split]]",
        "seed + STREAMS[split]",
        "tests/tasks/test_streams.py",
    ),
    "Adam instead of AdamW": (
        "conf/optimizer/adamw.yaml",
        "torch.optim.AdamW",
        "torch.optim.Adam",
        "tests/runs/test_optimizer.py",
    ),
    "a key that moves numbers is no part of run_id": (
        "src/coefdyn/config/identity.py",
        '"trainer": {"devices", ',
        '"trainer": {"devices", "clip", ',
        "tests/config/test_identity.py",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("bug", PLANTED)
def test_a_planted_bug_is_caught(bug: str, tmp_path: Path) -> None:
    path, old, new, tests = PLANTED[bug]
    place = tree(tmp_path / "tree")
    text = (place / path).read_text()
    assert text.count(old) == 1
    (place / path).write_text(text.replace(old, new))
    end, by, _ = run(place, [tests], limit=300)
    assert end == "caught"
    assert by.startswith(tests), by


def test_what_is_planted_can_be() -> None:
    """Each place is still as the table says."""
    for path, old, _, tests in PLANTED.values():
        assert (ROOT / path).read_text().count(old) == 1, f"{path}: {old}"
        assert (ROOT / tests).exists()
