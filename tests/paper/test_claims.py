"""Claims: what satisfies, violates and under-fills each."""

from pathlib import Path

import pandas as pd
import pytest

from coefdyn.paper import experiments
from coefdyn.paper.principle2 import set_rank
from coefdyn.paper.report import judge
from coefdyn.principles.invariance import same_function
from coefdyn.results.files import TableFolder
from coefdyn.results.statistics import rank_correlation, slope
from tests.paper.worlds import SCRIPTED, fill

CLAIMS = {claim.name: claim for e in experiments().values() for claim in e.claims}
# Under the norm after the sequence model these compare a function with itself.
INVARIANT = {
    "P5 spread, relu attention",
    "P5 spread, mamba2",
    "P5 spread, householder",
    "P6 power",
    "P5 spread, relu attention (no post-norm)",
}


def verdicts(folder: TableFolder) -> dict[str, str]:
    return {row["claim"]: row["verdict"] for row in judge(folder)}


def test_every_claim_is_judged_as_the_world_is(worlds: dict[str, TableFolder]) -> None:
    yes, no, thin = (verdicts(worlds[name]) for name in ("right", "wrong", "thin"))
    assert yes.keys() == no.keys() == thin.keys() == CLAIMS.keys() > INVARIANT
    for name, claim in CLAIMS.items():
        if not all(stem.startswith(SCRIPTED) for stem in claim.needs):
            continue  # of an experiment that the worlds do not know
        if name in INVARIANT:
            assert (yes[name], no[name]) == ("invariant by construction",) * 2, name
        else:
            assert (yes[name], no[name]) == ("reproduced", "not reproduced"), name
        if not any(experiments()[stem].columns for stem in claim.needs):  # which has no runs
            assert thin[name] == "not enough runs", name


def test_a_claim_on_one_family_needs_its_runs_only(tmp_path: Path) -> None:
    stem, lacking = "principle5_no_post_norm", "P5 spread, householder (no post-norm)"
    folder = fill(tmp_path, keep=lambda run: run.choices["model"] != "householder", stems=[stem])
    rows = {row["claim"]: row for row in judge(folder)}
    assert rows["P5 spread, mamba2 (no post-norm)"]["verdict"] == "reproduced"
    for name in (lacking, "P5 exp spreads most (no post-norm)"):
        assert rows[name]["verdict"] == "not enough runs"
    assert "8 of 8 points" in rows[lacking]["statistic"]


def test_what_a_table_was_narrowed_by_is_said(tmp_path: Path) -> None:
    folder = fill(tmp_path, stems=["principle3_position"], narrowed=["trainer.max_epochs=1"])
    for row in judge(folder):
        named = row["statistic"].endswith("; with trainer.max_epochs=1")
        assert named == row["claim"].startswith("P3"), row["claim"]


@pytest.fixture
def tables(worlds: dict[str, TableFolder]) -> dict[str, pd.DataFrame]:
    stems = ("principle2_readout", "principle2_2_zeros")
    return {stem: worlds["right"].read(stem) for stem in stems}


def test_equal_accuracies_are_an_answer(tables: dict[str, pd.DataFrame]) -> None:
    claim = CLAIMS["P2 fuzzy recall, near zero to accuracy"]
    tables["principle2_readout"]["accuracy"] = 0.5
    assert claim.judge(tables).verdict == "not reproduced"
    tables["principle2_readout"]["near_zero"] = 0.5
    assert claim.judge(tables).verdict == "not enough runs"


def test_zeros_of_one_task_are_not_enough(tables: dict[str, pd.DataFrame]) -> None:
    zeros = tables["principle2_2_zeros"]
    tables["principle2_2_zeros"] = zeros[zeros["task"] == "fuzzy_recall"]
    assert CLAIMS["P2.2 limit"].judge(tables).verdict == "not enough runs"


def test_without_tables_nothing_is_claimed() -> None:
    for claim in CLAIMS.values():
        assert claim.judge({}).verdict == "not enough runs"


def test_what_the_norm_hides_is_hidden_and_what_it_does_not_is_not() -> None:
    one, scaled = (["model=mamba2", f"model/scaling={name}"] for name in ("one", "inverse_sqrt"))
    assert same_function(one, scaled)[0]
    bare = "model.block.post_norm=none"
    same, words = same_function([*one, bare], [*scaled, bare])
    assert not same
    assert "differ by" in words


def test_sets_are_ranked_by_where_they_end() -> None:
    ranks = {name: set_rank(name) for name in ("identity", "exp", "softplus", "sigmoid", "relu")}
    assert ranks["identity"] < ranks["exp"] == ranks["softplus"] == ranks["sigmoid"] < ranks["relu"]


def test_a_slope_is_that_of_the_power_law() -> None:
    x = [2.0**k for k in range(4, 12)]
    fit = slope(x, [3 * v**1.7 for v in x])
    assert fit.slope == pytest.approx(1.7)
    assert fit.low - 1e-9 <= 1.7 <= fit.high + 1e-9
    noisy = slope(x, [v**2 * (1.1 if i % 2 else 0.9) for i, v in enumerate(x)])
    assert noisy.low < 2 < noisy.high


def test_rank_correlation_knows_order_and_its_own_chance() -> None:
    up = rank_correlation([1, 2, 3, 4, 5, 6], [10, 20, 30, 40, 50, 60])
    assert (up.rho, up.n) == (pytest.approx(1), 6)
    assert up.p == pytest.approx(1 / 720, abs=2e-3)
    down = rank_correlation([1, 2, 3, 4, 5, 6], [6, 5, 4, 3, 2, 1])
    assert (down.rho, down.p) == (pytest.approx(-1), 1.0)
    flat = rank_correlation([1, 1, 1], [1, 2, 3])
    assert flat.rho != flat.rho
