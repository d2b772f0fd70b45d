"""Claims: what satisfies, violates and under-fills each."""

from pathlib import Path

import pytest

from coefdyn.paper.claims import CLAIMS
from coefdyn.paper.claims.readouts import set_rank
from coefdyn.paper.report import judge
from coefdyn.principles.invariance import same_function
from coefdyn.results.files import Shelf
from coefdyn.results.statistics import rank_correlation, slope
from tests.paper.worlds import record, right, runs_of, shelf, wrong

pytestmark = pytest.mark.xdist_group("worlds")  # whose plans take long, once

# Under the norm after the sequence model these compare a function with itself.
INVARIANT = {
    "P5 spread, relu attention",
    "P5 spread, mamba2",
    "P5 spread, householder",
    "P6 power",
    "P5 spread, relu attention (no post-norm)",
}


@pytest.fixture(scope="module")
def worlds(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Shelf]:
    place = tmp_path_factory.mktemp("worlds")
    return {
        "right": shelf(place / "right", right),
        "wrong": shelf(place / "wrong", wrong),
        "thin": shelf(place / "thin", right, keep=lambda run: run.settings["seed"] == 0
                      and run.settings["optimizer"]["lr"] == 1e-3),
    }  # fmt: skip


def verdicts(found: Shelf) -> dict[str, str]:
    return {row["claim"]: row["verdict"] for row in judge(found)}


def test_every_claim_is_judged_as_the_world_is(worlds: dict[str, Shelf]) -> None:
    yes, no, thin = (verdicts(worlds[name]) for name in ("right", "wrong", "thin"))
    assert set(yes) == {claim.name for claim in CLAIMS}
    for name in yes:
        if name in INVARIANT:
            assert (yes[name], no[name]) == ("invariant by construction",) * 2, name
        else:
            assert (yes[name], no[name]) == ("reproduced", "not reproduced"), name
        if name != "P1 slopes":  # its table has no runs
            assert thin[name] == "not enough runs", name


def test_a_claim_on_one_family_needs_its_runs_only(tmp_path: Path) -> None:
    found = shelf(
        tmp_path,
        right,
        keep=lambda run: run.choices["model"] != "householder",
        stems=["principle5_no_post_norm"],
    )
    said = {row["claim"]: row for row in judge(found)}
    assert said["P5 spread, mamba2 (no post-norm)"]["verdict"] == "reproduced"
    for lacking in ("P5 spread, householder (no post-norm)", "P5 exp spreads most (no post-norm)"):
        assert said[lacking]["verdict"] == "not enough runs"
    assert "8 of 8 points" in said["P5 spread, householder (no post-norm)"]["statistic"]


def test_what_a_table_was_narrowed_by_is_said(tmp_path: Path) -> None:
    stem = "principle3_position"
    runs = runs_of(stem)
    records = {run.run_id: record(stem, run, right) for run in runs}
    Shelf(tmp_path, "smoke").write(stem, runs, records, ["trainer.max_epochs=1"])
    for row in judge(Shelf(tmp_path, "smoke")):
        said = row["statistic"].endswith("; with trainer.max_epochs=1")
        assert said == row["claim"].startswith("P3"), row["claim"]


def test_equal_accuracies_are_an_answer(worlds: dict[str, Shelf]) -> None:
    tables = worlds["right"].read_all()
    tables["principle2_readout"]["accuracy"] = 0.5
    claim = next(c for c in CLAIMS if c.name == "P2 fuzzy recall, near zero to accuracy")
    assert claim.judge(tables).verdict == "not reproduced"
    tables["principle2_readout"]["near_zero"] = 0.5
    assert claim.judge(tables).verdict == "not enough runs"


def test_zeros_of_one_task_are_not_enough(worlds: dict[str, Shelf]) -> None:
    tables = worlds["right"].read_all()
    zeros = tables["principle2_2_zeros"]
    tables["principle2_2_zeros"] = zeros[zeros["task"] == "fuzzy_recall"]
    claim = next(c for c in CLAIMS if c.name == "P2.2 limit")
    assert claim.judge(tables).verdict == "not enough runs"


def test_without_tables_nothing_is_claimed() -> None:
    for claim in CLAIMS:
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
