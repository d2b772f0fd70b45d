"""Claims: what becomes of each where it holds, fails, cannot be told, or has too few runs."""

import re
from pathlib import Path

import pytest

from coefdyn.paper import experiments
from coefdyn.paper.report import page
from coefdyn.paper.verdicts import judge
from coefdyn.principles.invariance import same_function
from coefdyn.results.claim import Claim
from coefdyn.results.files import TableFolder
from coefdyn.results.tables import AXES, axes_of_run
from tests.paper.worlds import SCRIPTED, fill, right, runs_of

pytestmark = pytest.mark.long

CLAIMS: dict[str, Claim] = {c.name: c for e in experiments().values() for c in e.claims}
# Under the norm after the sequence model these compare a function with itself.
INVARIANT = {
    "P5 spread, relu attention",
    "P5 spread, mamba2",
    "P5 spread, householder",
    "P6 power",
    "P5 spread, relu attention (no post-norm)",
    "P5 language, Mamba-2",
}


def rows_of(folder: TableFolder) -> list[dict[str, str]]:
    return [judged.row() for judged in judge(folder)]


def verdicts(folder: TableFolder) -> dict[str, str]:
    return {row["claim"]: row["verdict"] for row in rows_of(folder)}


def test_every_claim_is_judged_as_the_world_is(worlds: dict[str, TableFolder]) -> None:
    """From records of the real grids to verdicts; whether designs differ is computed."""
    yes, no, unsure, thin = (verdicts(worlds[name]) for name in ("right", "wrong", "noisy", "thin"))
    assert yes.keys() == no.keys() == thin.keys() == CLAIMS.keys() > INVARIANT
    for name, claim in CLAIMS.items():
        if not all(stem.startswith(SCRIPTED) for stem in claim.needs):
            continue  # of an experiment that the worlds do not know
        if name in INVARIANT:
            assert {yes[name], no[name], unsure[name]} == {"invariant by construction"}, name
        else:
            found = yes[name], no[name], unsure[name]
            assert found == ("reproduced", "not reproduced", "inconclusive"), name
        if not any(experiments()[stem].columns for stem in claim.needs):  # which has no runs
            few = "invariant by construction" if name in INVARIANT else "not enough runs"
            assert thin[name] == few, name


@pytest.mark.parametrize(
    ("stem", "change", "claims", "words"),
    [
        ("principle2_readout", {"exp": 0.8}, ["P2 fuzzy recall, set to near zero"],
         "does not solve the task: 0.80 of 1.00"),
        ("principle2_readout", dict.fromkeys(("exp", "relu", "identity", "sigmoid", "softplus",
         "elu_plus_one"), 1.0), ["P2 fuzzy recall, near zero to accuracy"],
         "all 6 designs are at the ceiling"),
        ("principle4_evolution", dict.fromkeys(("scalar_gla", "scalar_mamba2"), 0.95),
         ["P4 structure, fuzzy recall"], "a scalar A_t already has 0.95"),
        ("principle3_position", {"exp": 0.6}, ["P3 without position, against chance"],
         "does not solve the task"),
    ],
)  # fmt: skip
def test_what_cannot_be_decided_here_says_why(
    stem: str, change: dict[str, float], claims: list[str], words: str, tmp_path: Path
) -> None:
    from dataclasses import replace

    def world(name, run):  # type: ignore[no-untyped-def]
        found = right(name, run)
        chosen = {run.choices["model/readout"], run.choices["model/evolution"]} & change.keys()
        return replace(found, accuracy=change[chosen.pop()]) if chosen else found

    folder = fill(tmp_path, world, stems=[stem])
    rows = {row["claim"]: row for row in rows_of(folder)}
    for claim in claims:
        assert rows[claim]["verdict"] == "not decidable at this scale", rows[claim]
        assert words in rows[claim]["statistic"]


def test_a_rate_at_the_edge_of_the_grid_decides_nothing(tmp_path: Path) -> None:
    folder = fill(tmp_path, stems=["principle2_readout"])
    path = folder.path("principle2_readout")
    path.write_text(path.read_text().replace(",inside,", ",largest,"))
    rows = {row["claim"]: row for row in rows_of(folder)}
    row = rows["P2 fuzzy recall, set to near zero"]
    assert row["verdict"] == "not decidable at this scale"
    assert "6 of 6 points have their best learning rate at an edge" in row["statistic"]


def test_readings_that_differ_decide_nothing(tmp_path: Path) -> None:
    """Coefficients near zero may be raw, or divided by eta."""
    folder = fill(tmp_path, stems=["principle2_readout"])
    tables = folder.tables_of(experiments()["principle2_readout"])
    runs = tables["principle2_readout_runs"]
    runs["near_zero_raw"] = 1 - runs["near_zero"]
    judgement = CLAIMS["P2 fuzzy recall, set to near zero"].judge(tables)
    assert judgement.verdict == "inconclusive"
    assert judgement.statistic.startswith("depends on the reading")


def test_a_claim_says_its_numbers_with_intervals(worlds: dict[str, TableFolder]) -> None:
    rows = {row["claim"]: row["statistic"] for row in rows_of(worlds["right"])}
    number = r"-?[\d.]+ \[-?[\d.]+, -?[\d.]+\]"
    assert re.fullmatch(
        rf"near zero: half-lines - identity {number}, wanted >= 0.05; "
        rf"near zero: relu - half-lines {number}, wanted >= 0.05",
        rows["P2 fuzzy recall, set to near zero"],
    )
    unsure = {row["claim"]: row["statistic"] for row in rows_of(worlds["noisy"])}
    assert "seeds would decide it if the estimates stay" in unsure["P4 structure, fuzzy recall"]


def test_points_that_a_claim_reads_are_points_of_its_grids() -> None:
    """Or more seeds would be run for nothing."""
    for claim in CLAIMS.values():
        stems = [stem for stem in claim.needs if not experiments()[stem].columns]
        for where in claim.reads:
            names = {k: v for k, v in where.items() if k in AXES}
            found = [
                run
                for stem in stems
                for run in runs_of(stem)
                for row in [axes_of_run(run)]
                if all(row[k] == v for k, v in names.items())
            ]
            known = claim.invariance is not None  # without a run
            assert found or known or not stems, (claim.name, where)


def test_the_report_has_a_row_per_claim_in_its_order(tmp_path: Path) -> None:
    """With what its tables were narrowed by, of whichever tables it needs."""
    folder = fill(tmp_path, stems=["principle2_readout"], narrowed=["batch_size=3"])
    rows = rows_of(folder)
    assert [row["claim"] for row in rows] == list(CLAIMS)
    for row, claim in zip(rows, CLAIMS.values(), strict=True):
        assert set(row) == {"scale", "claim", "statement", "verdict", "statistic", "place"}
        assert row["place"] == claim.place
        assert row["statistic"].endswith("; with batch_size=3") == (
            "principle2_readout" in claim.needs
        )


def test_the_page_counts_verdicts_by_scale(tmp_path: Path) -> None:
    stem = "principle3_position"
    smoke, none = fill(tmp_path, stems=[stem]), TableFolder(tmp_path, "lite")
    text, rest = page([smoke, none]), len(CLAIMS)
    known = len(INVARIANT)  # without a run
    smoke_words = (
        f"{rest - 3 - known} not enough runs, {known} invariant by construction, 3 reproduced "
        "(3 could be judged; chance alone makes at most 0.15 of them wrong, on average)"
    )
    lite_words = f"{rest - known} not enough runs, {known} invariant by construction"
    assert f"<b>scale=smoke</b>: {smoke_words}; <b>scale=lite</b>: {lite_words}" in text
    (row,) = (line for line in text.splitlines() if "<td><a" in line and "P3 position" in line)
    assert CLAIMS["P3 position solves"].statement in row
    cells = re.findall(r'<td class="([a-z-]+)" data-label="(\w+)">(.*?)</td>', row)
    assert [cell[:2] for cell in cells] == [("reproduced", "smoke"), ("not-enough-runs", "lite")]
    assert '<b class="verdict">reproduced</b> 0.99 [' in cells[0][2]
    assert "<circle" in cells[0][2]
    assert "<circle" not in cells[1][2]
    assert f"no table of {stem}" in text  # among the details
    (line,) = (line for line in text.splitlines() if "at any scale yet" in line)
    assert line.count("<a href=") == rest - 3 - known


def test_what_the_norm_hides_is_hidden_and_what_it_does_not_is_not() -> None:
    one, scaled = (["model=mamba2", f"model/scaling={name}"] for name in ("one", "inverse_sqrt"))
    assert same_function(one, scaled)[0]
    bare = "model.block.post_norm=none"
    same, words = same_function([*one, bare], [*scaled, bare])
    assert not same
    assert "differ by" in words


def test_both_sides_of_a_difference_get_more_seeds() -> None:
    """Kernels are compared with the readouts of the same names, of another experiment."""
    reads = CLAIMS["P2.1 fuzzy recall, accuracy"].reads
    names = {where["readout"] for where in reads}
    assert {"kernel_relu", "relu", "kernel_exp", "exp"} <= names
