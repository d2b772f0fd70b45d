"""Where P5 ends, on recall and on language: spreads and perplexities, each up to its border."""

from itertools import product
from typing import Any

import pandas as pd
import pytest

from coefdyn.paper import principle5
from tests.paper.right_tables import (
    ALL,
    FAMILIES,
    FLIPS,
    PERPLEXITY,
    SCALED,
    SCALING,
    UNSCALED,
    WIKITEXT,
    Border,
    Cells,
    Tables,
    change,
    judge,
    right,
    verdict,
)

STEMS = list(zip(SCALING, ("", " (no post-norm)"), strict=True))  # with the words of its claims
LANGUAGE = "All principles, language"


@pytest.fixture(autouse=True)
def differ(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Designs are told apart unseen, which takes seconds otherwise; holds which were compared."""
    compared: list[Any] = []

    def same_function(*designs: list[str]) -> tuple[bool, str]:
        compared.append(designs)
        return False, "they differ"

    monkeypatch.setattr(principle5, "same_function", same_function)
    return compared


def spread(stem: str, **where: object) -> Cells:
    """Accuracies begin at 0, so that the largest is the spread."""
    return Cells(stem, "accuracy_max", where)


def spreads(stem: str, scaled: float, unscaled: float) -> Tables:
    """Of two sizes, which makes a mean of four."""
    tables = right()
    tables |= {stem: tables[stem][tables[stem]["n_state"] < 64]}
    for names, value in ((SCALED, scaled), (UNSCALED, unscaled)):
        for name in names:
            tables = change(tables, spread(stem, scaling=name), value)
    return tables


def claim_on(family: str, words: str) -> str:
    return f"P5 spread, {family.replace('_', ' ')}{words}"


@pytest.mark.parametrize(("stem", "words"), STEMS)
@pytest.mark.parametrize("family", FAMILIES)
def test_each_spread_of_a_family_counts(stem: str, words: str, family: str) -> None:
    """Means of 0.13 and 0.1: a mean of 0.12, or one of 0.13 / 1.2, is the border."""
    tables = spreads(stem, scaled=0.1, unscaled=0.13)
    for scaling, size in product((*SCALED, *UNSCALED), (16, 32)):
        cells = spread(stem, model=family, scaling=scaling, n_state=size)
        ends = (0.1333, 0.1334) if scaling in SCALED else (0.0901, 0.0899)
        assert Border(claim_on(family, words), cells, *ends).verdicts(tables) == FLIPS


@pytest.mark.parametrize(("stem", "words"), STEMS)
def test_a_small_spread_is_larger_by_more_than_a_point(stem: str, words: str) -> None:
    for scaled, unscaled, expected in (
        (0.0, 0.01, "not reproduced"),
        (0.0, 0.0101, "reproduced"),
        (0.02, 0.0299, "not reproduced"),
        (0.02, 0.0301, "reproduced"),
    ):
        tables = spreads(stem, scaled, unscaled)
        assert verdict(claim_on("mamba2", words), tables) == expected


@pytest.mark.parametrize(("stem", "words"), STEMS)
def test_a_family_is_judged_by_its_own_design_and_runs(
    stem: str, words: str, differ: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = change(right(), spread(stem, model="mamba2"), 0.0)
    verdicts = {family: verdict(claim_on(family, words), tables) for family in FAMILIES}
    assert verdicts == dict.fromkeys(FAMILIES, "reproduced") | {"mamba2": "not reproduced"}
    norm = "model.block.post_norm=" + ("none" if words else "all")
    for family, designs in zip(FAMILIES, differ, strict=True):
        shared = {f"experiment={stem}", f"model={family}", norm}
        scalings = [{f"model/scaling={name}"} for name in ("one", "inverse_sqrt")]
        assert [set(design) - shared for design in designs] == scalings
        assert all(shared < set(design) for design in designs)
    monkeypatch.setattr(principle5, "same_function", lambda *_: (True, "the same"))
    judgement = judge(claim_on("mamba2", words), tables)
    assert judgement.verdict == "invariant by construction"
    means = "mean spread 0.000 without 1/sqrt(n), 0.000 with"
    assert judgement.statistic == f"the same; {means}"


@pytest.mark.parametrize(("stem", "words"), STEMS)
@pytest.mark.parametrize("family", FAMILIES[1:])
def test_exp_spreads_more_than_each_other_family(stem: str, words: str, family: str) -> None:
    """By the factor 1.2 where spreads are large, by a point where they are small."""
    claim, none = f"P5 exp spreads most{words}", spreads(stem, scaled=0.0, unscaled=0.0)
    for exp, second in ((0.3, 0.25), (0.04, 0.03)):
        tables = change(none, spread(stem, model="softmax_attention"), exp)
        tables = change(tables, spread(stem, model=family), second)
        for scaling in UNSCALED:
            cells = spread(stem, model=family, scaling=scaling)
            border = Border(claim, cells, second - 2e-4, second + 2e-4)
            assert border.verdicts(tables) == FLIPS
    assert verdict(claim, change(none, spread(stem, model=family), 0.3)) == "not reproduced"


@pytest.mark.parametrize(("stem", "words"), STEMS)
def test_that_exp_spreads_most_is_a_claim_on_what_is_not_scaled(stem: str, words: str) -> None:
    tables = right()
    for scaling in SCALED:
        tables = change(tables, spread(stem, model="mamba2", scaling=scaling), 0.9)
    assert verdict(f"P5 exp spreads most{words}", tables) == "reproduced"


@pytest.mark.parametrize(("stem", "words"), STEMS)
@pytest.mark.parametrize("values", [(0.1, 0.2, 0.3), (0.3, 0.2, 0.1)], ids=["rise", "fall"])
def test_a_trend_is_one_in_all_eight_rows(stem: str, words: str, values: tuple[float, ...]) -> None:
    claim, tables = f"P5 head dimension{words}", right()
    for size, value in zip((16, 32, 64), values, strict=True):
        for name in UNSCALED:
            tables = change(tables, spread(stem, n_state=size, scaling=name), value)
    tables |= {stem: tables[stem].iloc[::-1]}  # in any order of rows
    trend = judge(claim, tables)
    rises = values[0] < values[-1]
    assert trend.verdict == "not reproduced"
    assert trend.statistic == (
        f"from size to size it rises in {8 * rises} and falls in {8 * (not rises)} of 8 rows"
    )
    for family, scaling in product(FAMILIES, UNSCALED):
        middle = spread(stem, model=family, scaling=scaling, n_state=32)
        end = spread(stem, model=family, scaling=scaling, n_state=64)
        for cells in (middle, end):  # equal to the first, so neither rises nor falls all the way
            assert verdict(claim, change(tables, cells, values[0])) == "reproduced"


@pytest.mark.parametrize(("stem", "words"), STEMS)
def test_a_spread_takes_three_seeds_at_every_point(stem: str, words: str) -> None:
    claims = [f"P5 exp spreads most{words}", f"P5 head dimension{words}"]
    for family, scaling in product(FAMILIES, (*SCALED, *UNSCALED)):
        cells = Cells(stem, "seeds", {"model": family, "scaling": scaling, "n_state": 64})
        tables = change(right(), cells, 2)
        for claim in claims:
            assert judge(claim, tables).statistic == (
                f"1 of 48 points of {stem} have fewer than 3 seeds"
            )
        own = judge(claim_on(family, words), tables)
        assert own.statistic == f"1 of 12 points of {stem} have fewer than 3 seeds"
        assert own.verdict == "not enough runs"


@pytest.mark.parametrize(("stem", "words"), STEMS)
def test_a_claim_on_one_family_needs_its_runs_only(stem: str, words: str) -> None:
    table = right()[stem]
    tables = {stem: table[table["model"] != "householder"]}
    assert verdict(claim_on("mamba2", words), tables) == "reproduced"
    lacking = {
        claim_on("householder", words): "12 of 12",
        f"P5 exp spreads most{words}": "12 of 48",
        f"P5 head dimension{words}": "12 of 48",
    }
    for claim, number in lacking.items():
        judgement = judge(claim, tables)
        assert judgement.verdict == "not enough runs"
        assert judgement.statistic == f"{number} points of {stem} have fewer than 3 seeds"


@pytest.mark.parametrize(("stem", "words"), STEMS)
def test_seeds_of_several_points_of_one_size_count_together(stem: str, words: str) -> None:
    table = right()[stem]
    halves = [table.assign(seeds=1, accuracy_min=0.5, accuracy_max=0.6), table.assign(seeds=2)]
    tables = {stem: pd.concat(halves, ignore_index=True)}
    judgement = judge(claim_on("relu_attention", words), tables)
    assert judgement.statistic == "mean spread 0.600 without 1/sqrt(n), 0.600 with"


@pytest.mark.parametrize(("stem", "words"), STEMS)
def test_a_spread_takes_two_head_dimensions(stem: str, words: str) -> None:
    table = right()[stem]
    two, one = ({stem: table[table["n_state"] < limit]} for limit in (64, 32))
    for claim in (claim_on("mamba2", words), f"P5 head dimension{words}"):
        assert verdict(claim, two) == "reproduced"
        judgement = judge(claim, one)
        assert judgement.verdict == "not enough runs"
        assert judgement.statistic.endswith("have fewer than 3 seeds; one head dimension")


def perplexity(model: str, stem: str = WIKITEXT) -> Cells:
    return Cells(stem, PERPLEXITY, {"model": model})


@pytest.mark.parametrize(
    "border",
    [
        *(Border("P5 language, gap", perplexity(f"{family}_unscaled"), *values)
          for family in ("mamba2", "softmax_attention")
          for values in ((100.01, 100.0), (109.99, 110.0))),
        Border("P5 language, gap", perplexity("mamba2_inverse_sqrt"), 104.99, 105.0),
        Border("P5 language, gap", perplexity("softmax_attention"), 105.99, 106.0),
        Border("P5 language, Delta", perplexity("mamba2_inverse_sqrt"), 103.01, 103.03),
        Border("P5 language, Delta", perplexity("mamba2"), 102.03, 102.05),
        *(Border(LANGUAGE, perplexity(f"all_but_p{number}", ALL), 102.01, 101.99)
          for number in range(2, 7)),
        Border(LANGUAGE, perplexity("all_principles", ALL), 117.6, 117.7),
    ],
    ids=str,
)  # fmt: skip
def test_each_perplexity_counts(border: Border) -> None:
    assert border.verdicts(right()) == FLIPS


def test_without_p1_the_perplexity_may_be_anything() -> None:
    for value in (1.0, 1000.0):
        assert verdict(LANGUAGE, change(right(), perplexity("all_but_p1", ALL), value)) == (
            "reproduced"
        )


@pytest.mark.parametrize("number", range(1, 7))
def test_a_broken_design_that_always_diverged_is_worse(number: int) -> None:
    """Where some of its runs did not, their perplexity is what counts, and it must be known."""
    broken = {"model": f"all_but_p{number}"}
    tables = change(right(), perplexity(f"all_but_p{number}", ALL), float("nan"))
    always = judge(LANGUAGE, change(tables, Cells(ALL, "diverged", broken), 2))
    assert always.verdict == "reproduced"
    assert f"P{number} diverged" in always.statistic
    assert verdict(LANGUAGE, change(tables, Cells(ALL, "diverged", broken), 1)) == (
        "not enough runs"
    )
