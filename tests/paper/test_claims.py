"""Claims: how each is judged where all is right and where all is wrong, and what becomes of it."""

import re
from collections import Counter
from pathlib import Path

import pytest

from coefdyn.paper import experiments, principle5, principle6
from coefdyn.paper.report import judge, page
from coefdyn.principles.invariance import same_function
from coefdyn.results.files import TableFolder
from tests.paper import right_tables
from tests.paper.right_tables import CLAIMS, KERNEL, POSITION, READOUT, right
from tests.paper.worlds import SCRIPTED, fill

# Under the norm after the sequence model these compare a function with itself.
INVARIANT = {
    "P5 spread, relu attention",
    "P5 spread, mamba2",
    "P5 spread, householder",
    "P6 power",
    "P5 spread, relu attention (no post-norm)",
}
# What is said of the right tables, where all designs differ; P2's p is a matter of chance.
RELATION = r"rho = {} \(p = 0\.0\d\d, n = 6\)"
STATISTICS = {
    "P1 slopes": "slope: linear 1.00 (95 % 1.00 to 1.00), quadratic 2.00 (95 % 2.00 to 2.00)",
    "P2.1 kernels, near zero": "lower in 8 of 8 pairs, higher in 0",
    "P2.1 kernels, accuracy": "lower in 8 of 8 pairs, higher in 0",
    "P2.1 kernels and identity": "larger in 6 of 6 pairs",
    "P2.2 limit": "at most 3.00 zeros (mean over sequences), 4 in one sequence; limit 7",
    "P2.2 length": "3.00 at length 18, 2.00 at 16",
    "P3 position solves": "accuracies 0.97 to 0.99",
    "P3 without position": "exp 0.10, softplus 0.12, relu 0.60; chance 0.10",
    "P4 structure, fuzzy recall": "scalar 0.550, diagonal 0.650, Householder 0.750",
    "P4 structure, selective copying": "scalar 0.550, diagonal 0.650, Householder 0.750",
    "P4 parameterization": "largest gap 0.050: scalar on fuzzy recall",
    "P5 language, gap": "b = 1 against 1/sqrt(n): Mamba-2 +5.0%, softmax attention +6.0%",
    "P5 language, Delta": "1/sqrt(n) against Delta: -1.0%",
    "All principles, language": "perplexity against 100 with none broken: P1 -10.0%, P2 +20.0%, "
    "P3 +30.0%, P4 +40.0%, P5 +50.0%, P6 +60.0%",
}
STATISTICS_OF_BOTH_STEMS = {
    "P5 spread, softmax attention": "mean spread 0.300 without 1/sqrt(n), 0.020 with",
    "P5 spread, relu attention": "mean spread 0.100 without 1/sqrt(n), 0.020 with",
    "P5 spread, mamba2": "mean spread 0.200 without 1/sqrt(n), 0.020 with",
    "P5 spread, householder": "mean spread 0.150 without 1/sqrt(n), 0.020 with",
    "P5 exp spreads most": "softmax_attention 0.300, mamba2 0.200, householder 0.150, "
    "relu_attention 0.100",
    "P5 head dimension": "from size to size it rises in 0 and falls in 0 of 8 rows",
    "P6 sum": "accuracies 0.96, 0.97, 1.00 for exp, softplus, relu",
    "P6 exp fails": "0.10 with eta = 1, 0.15 with c^i; chance 0.10",
    "P6 power": "eta = 1: 0.70, 0.80; c^i: 0.98, 0.99 (softplus, relu)",
}


def verdicts(folder: TableFolder) -> dict[str, str]:
    return {row["claim"]: row["verdict"] for row in judge(folder)}


def test_every_claim_is_judged_as_the_world_is(worlds: dict[str, TableFolder]) -> None:
    """From records of the real grids to verdicts; whether designs differ is computed."""
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


def test_a_claim_says_its_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (principle5, principle6):  # whose designs take seconds to compare
        monkeypatch.setattr(module, "same_function", lambda *_: (False, "they differ"))
    expected = STATISTICS | {f"{name}{words}": text for words in ("", " (no post-norm)")
                             for name, text in STATISTICS_OF_BOTH_STEMS.items()}  # fmt: skip
    judgements = {name: right_tables.judge(name, right()) for name in expected}
    assert {name: j.statistic for name, j in judgements.items()} == expected
    assert {j.verdict for j in judgements.values()} == {"reproduced"}
    for task in ("fuzzy recall", "selective copying", "memorization"):
        for words, rho in (("set to near zero", 0.85), ("near zero to accuracy", 1),
                           ("ratio to accuracy", 1)):  # fmt: skip
            judgement = right_tables.judge(f"P2 {task}, {words}", right())
            assert judgement.verdict == "reproduced"
            assert re.fullmatch(RELATION.format(f"{rho:.2f}"), judgement.statistic)


def test_the_report_has_a_row_per_claim_in_its_order(tmp_path: Path) -> None:
    """With what its tables were narrowed by, of whichever tables it needs."""
    fill(tmp_path, stems=[KERNEL], narrowed=["trainer.max_epochs=1", "seed=2"])
    folder = fill(tmp_path, stems=[READOUT], narrowed=["seed=2", "batch_size=3"])
    tables = {stem: folder.read(stem) for stem in (KERNEL, READOUT)}
    rows = judge(folder)
    assert [row["claim"] for row in rows] == list(CLAIMS)
    for row, claim in zip(rows, CLAIMS.values(), strict=True):
        judgement = claim.judge(tables)
        words = {
            (READOUT,): "; with seed=2 batch_size=3",
            (KERNEL, READOUT): "; with trainer.max_epochs=1 seed=2 batch_size=3",
        }.get(claim.needs, "")
        assert row == {
            "scale": "smoke",
            "claim": claim.name,
            "statement": claim.statement,
            "verdict": judgement.verdict,
            "statistic": judgement.statistic + words,
            "falsified by": claim.falsified_by,
        }
    assert Counter(row["verdict"] for row in rows)["reproduced"] == 9 + 3  # P2, P2.1


def test_the_page_counts_verdicts_by_scale(tmp_path: Path) -> None:
    smoke, none = fill(tmp_path, stems=[POSITION]), TableFolder(tmp_path, "lite")
    text, rest = page([smoke, none]), len(CLAIMS)
    assert (
        f"<b>scale=smoke</b>: {rest - 2} not enough runs, 2 reproduced; "
        f"<b>scale=lite</b>: {rest} not enough runs" in text
    )
    (row,) = (line for line in text.splitlines() if "<b>P3 position solves</b>" in line)
    assert CLAIMS["P3 position solves"].statement in row
    cells = re.findall(r'<td class="([a-z-]+)" data-label="(\w+)"><b>([a-z ]+)</b><br>(.*?)</', row)
    assert cells == [
        ("reproduced", "smoke", "reproduced", "accuracies 0.99 to 0.99"),
        ("not-enough-runs", "lite", "not enough runs", f"no table of {POSITION}"),
    ]


def test_what_the_norm_hides_is_hidden_and_what_it_does_not_is_not() -> None:
    one, scaled = (["model=mamba2", f"model/scaling={name}"] for name in ("one", "inverse_sqrt"))
    assert same_function(one, scaled)[0]
    bare = "model.block.post_norm=none"
    same, words = same_function([*one, bare], [*scaled, bare])
    assert not same
    assert "differ by" in words
