"""The tables of scale=lite that are kept: complete, tuned, and at sizes where tasks are learned."""

from pathlib import Path

import pandas as pd
import pytest

FOLDER = Path(__file__).parents[2] / "results" / "tables" / "lite"
TABLES = {
    path.stem: pd.read_csv(path)
    for path in sorted(FOLDER.glob("*.csv"))
    if path.with_suffix(".json").exists()  # made from runs
}
SOFTMAX = {"evolution": "identity", "readout": "exp", "normalization": "row_sum",
           "position": "learned"}  # fmt: skip
SOLVED = [
    ("principle2_readout", "fuzzy_recall"),
    ("principle2_readout", "selective_copying"),
    ("principle2_readout", "memorization"),
    ("principle3_position", "noisy_recall"),
]


@pytest.mark.parametrize("stem", TABLES)
def test_no_run_is_missing(stem: str) -> None:
    assert (TABLES[stem]["missing"] == 0).all()


def test_few_points_have_their_best_rate_at_an_edge() -> None:
    edges = pd.concat([table["lr_at_edge"] for table in TABLES.values()])
    assert edges.isin(["smallest", "largest"]).mean() <= 0.1


@pytest.mark.parametrize(("stem", "task"), SOLVED)
def test_softmax_attention_learns_what_can_be_learned(stem: str, task: str) -> None:
    rows = TABLES[stem][TABLES[stem]["task"] == task]
    (row,) = rows[(rows[list(SOFTMAX)] == pd.Series(SOFTMAX)).all(axis="columns")].to_dict(
        "records"
    )
    assert row["accuracy"] >= 0.95 * row["ceiling"]


def test_a_scalar_decay_does_not_copy_what_structures_are_compared_by() -> None:
    if "principle4_evolution" not in TABLES:
        pytest.skip("principle 4 has not been run")
    rows = TABLES["principle4_evolution"]
    rows = rows[(rows["task"] == "selective_copying") & (rows["evolution"] == "scalar_gla")]
    assert rows["accuracy"].max() < 0.9
