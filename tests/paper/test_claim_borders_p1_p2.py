"""Where P1 and P2 end: a slope or a relation that is just enough, and one that just is not."""

import pytest

from coefdyn.paper import principle1, principle2
from coefdyn.paper.principle2 import set_rank
from coefdyn.results.statistics import Rank, Slope
from tests.paper.right_tables import (
    COPYING,
    FLIPS,
    LENGTHS,
    MEMORY,
    READOUT,
    RECALL,
    Border,
    Cells,
    Tables,
    change,
    judge,
    right,
    verdict,
)
from tests.paper.worlds import ORDER, lengths

SET, NEAR_ZERO, RATIO = (
    f"P2 fuzzy recall, {words}"
    for words in ("set to near zero", "near zero to accuracy", "ratio to accuracy")
)
# Past three others, of six in order, rho falls to 1 - 12 / 35 = 0.66; past two, to 0.83.
PAST_TWO_AND_THREE = {
    "identity": (0.55, 0.65),
    "elu_plus_one": (0.65, 0.75),
    "sigmoid": (0.75, 0.85),
    "softplus": (0.35, 0.25),
    "exp": (0.45, 0.35),
    "relu": (0.55, 0.45),
}
# Four of the sets end together, between identity's and relu's: only the order against those counts.
PAST_AN_END = {
    "identity": (0.39, 0.41),
    "elu_plus_one": (0.31, 0.29),
    "sigmoid": (0.31, 0.29),
    "softplus": (0.79, 0.81),
    "exp": (0.79, 0.81),
    "relu": (0.71, 0.69),
}


def cell(column: str, task: str, readout: str) -> Cells:
    return Cells(READOUT, column, {"task": task, "readout": readout})


@pytest.mark.parametrize(
    ("form", "inside", "beyond"),
    [
        ("linear", 0.751, 0.749),
        ("linear", 1.249, 1.251),
        ("quadratic", 1.601, 1.599),
        ("quadratic", 2.399, 2.401),
    ],
)
def test_each_form_has_its_band_of_slopes(form: str, inside: float, beyond: float) -> None:
    tables = [{LENGTHS: lengths({"linear": 1.0, "quadratic": 2.0} | {form: value})}
              for value in (inside, beyond)]  # fmt: skip
    assert tuple(verdict("P1 slopes", table) for table in tables) == FLIPS
    assert f"{form} {beyond:.2f} (95 % {beyond:.2f} to" in judge("P1 slopes", tables[1]).statistic


@pytest.mark.parametrize("ends", [(0.75, 1.6), (1.25, 2.4)])
def test_the_ends_of_a_band_belong_to_it(
    monkeypatch: pytest.MonkeyPatch, ends: tuple[float, float]
) -> None:
    fits = iter(ends)
    monkeypatch.setattr(principle1, "slope", lambda *_: Slope(next(fits), 0.0, 9.0))
    assert verdict("P1 slopes", right()) == "reproduced"


@pytest.mark.parametrize("form", ["linear", "quadratic"])
def test_a_slope_takes_four_lengths_of_each_form(form: str) -> None:
    table = right()[LENGTHS]
    short = table.drop(table.index[table["form"] == form][0])
    judgement = judge("P1 slopes", {LENGTHS: short})
    assert (judgement.verdict, judgement.statistic) == (
        "not enough runs",
        f"3 lengths of the {form} form",
    )


@pytest.mark.parametrize(
    "border",
    [
        *(Border(SET, cell("near_zero", RECALL, n), *v) for n, v in PAST_AN_END.items()),
        *(Border(claim, cell(column, RECALL, name), *values)
          for claim, column in ((NEAR_ZERO, "accuracy"), (NEAR_ZERO, "near_zero"),
                                (RATIO, "accuracy"), (RATIO, "ratio"))
          for name, values in PAST_TWO_AND_THREE.items()),
    ],
    ids=str,
)  # fmt: skip
def test_each_readout_alone_can_break_a_relation(border: Border) -> None:
    assert border.verdicts(right()) == FLIPS


@pytest.mark.parametrize("task", [RECALL, COPYING, MEMORY])
def test_a_relation_is_one_of_its_own_task(task: str) -> None:
    relations = {"set to near zero": "near_zero", "near zero to accuracy": "accuracy",
                 "ratio to accuracy": "ratio"}  # fmt: skip
    for words, column in relations.items():
        tables = change(right(), cell(column, task, "relu"), 0.0)
        for other in (RECALL, COPYING, MEMORY):
            expected = "not reproduced" if other == task else "reproduced"
            assert verdict(f"P2 {other.replace('_', ' ')}, {words}", tables) == expected


@pytest.mark.parametrize("claim", [SET, NEAR_ZERO, RATIO])
def test_a_relation_is_one_from_0_7_on(monkeypatch: pytest.MonkeyPatch, claim: str) -> None:
    for rho, expected in ((0.7, "reproduced"), (0.6999, "not reproduced")):
        monkeypatch.setattr(principle2, "rank_correlation", lambda *_, r=rho: Rank(r, 0.03, 6))
        judgement = judge(claim, right())
        assert judgement.verdict == expected
        assert judgement.statistic == "rho = 0.70 (p = 0.030, n = 6)"


@pytest.mark.parametrize(
    ("claim", "column"), [(SET, "near_zero"), (NEAR_ZERO, "near_zero"), (RATIO, "ratio")]
)
def test_a_relation_takes_four_readouts_that_have_both(claim: str, column: str) -> None:
    """Without the ones that rank it, four are left, of which two are ties of the sets."""
    four = right()
    for name in ("sigmoid", "exp"):
        four = change(four, cell(column, RECALL, name), float("nan"))
    judgement = judge(claim, four)
    assert judgement.verdict == "reproduced"
    assert "n = 4" in judgement.statistic
    three = judge(claim, change(four, cell(column, RECALL, "softplus"), float("nan")))
    assert three.verdict == "not enough runs"
    assert three.statistic.startswith("3 of 6 readouts have a ")


def test_accuracies_within_a_point_are_equal() -> None:
    def steps_of(size: float, column: str) -> Tables:
        tables = right()
        for place, name in enumerate(ORDER):
            tables = change(tables, cell(column, RECALL, name), 0.5 + size * place)
        return tables

    assert verdict(NEAR_ZERO, steps_of(0.01, "accuracy")) == "reproduced"
    equal = judge(NEAR_ZERO, steps_of(0.0009, "accuracy"))
    assert equal.verdict == "not reproduced"
    assert equal.statistic == "all readouts have the same accuracy"
    assert verdict(SET, steps_of(0.0009, "near_zero")) == "reproduced"  # no accuracy


def test_readouts_that_do_not_differ_show_no_relation() -> None:
    tables = change(right(), Cells(READOUT, "near_zero"), 0.5)
    judgement = judge(NEAR_ZERO, tables)
    assert judgement.verdict == "not enough runs"
    assert judgement.statistic == "all readouts have the same near_zero"


def test_sets_are_ranked_by_where_they_end() -> None:
    ranks = {name: set_rank(name) for name in ORDER}
    tied = dict.fromkeys(("elu_plus_one", "sigmoid", "softplus", "exp"), -6.91)
    assert ranks == {"identity": float("-inf"), **tied, "relu": 0.0}
