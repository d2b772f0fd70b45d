"""Where P3, P4 and P6 end: each accuracy that they rest on counts, up to its border."""

from itertools import product
from typing import Any

import pytest

from coefdyn.paper import principle6
from tests.paper.right_tables import (
    CHANCE,
    COPYING,
    EVOLUTION,
    FLIPS,
    HOUSEHOLDER,
    NORMALIZATION,
    POSITION,
    RECALL,
    Border,
    Cells,
    Tables,
    change,
    judge,
    right,
    verdict,
)

READOUTS = ("exp", "softplus", "relu")
SOLVED = (0.95, 0.95 - 1e-6)  # is the least that is solved; and what just is not
UNSOLVED = SOLVED[::-1]
SOLVING = (("identity", "learned"), ("constant", "learned"), ("constant", "none"))
P6_STEMS = list(
    zip(("", " (no post-norm)"), NORMALIZATION, strict=True)
)  # with words of its claims


def at(evolution: str, position: str, readout: str) -> Cells:
    where = {"evolution": evolution, "position": position, "readout": readout}
    return Cells(POSITION, "accuracy", where)


def of(evolution: str, task: str = RECALL) -> Cells:
    return Cells(EVOLUTION, "accuracy", {"task": task, "evolution": evolution})


def under(stem: str, normalization: str, readout: str) -> Cells:
    return Cells(stem, "accuracy", {"normalization": normalization, "readout": readout})


@pytest.fixture
def differ(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Designs are told apart unseen, which takes seconds otherwise; holds which were compared."""
    compared: list[Any] = []

    def same_function(*designs: list[str]) -> tuple[bool, str]:
        compared.append(designs)
        return False, "they differ"

    monkeypatch.setattr(principle6, "same_function", same_function)
    return compared


POSITION_BORDERS = [
    *(Border("P3 position solves", at(*way, name), *SOLVED)
      for way, name in product(SOLVING, READOUTS)),
    *(Border("P3 without position", at("identity", "none", name), 0.1 + 0.05, 0.1 + 0.05 + 1e-6)
      for name in ("exp", "softplus")),
    Border("P3 without position", at("identity", "none", "relu"), 0.1 + 0.05 + 1e-6, 0.1 + 0.05),
    Border("P3 without position", at("identity", "none", "relu"), *UNSOLVED),
]  # fmt: skip


@pytest.mark.parametrize("border", POSITION_BORDERS, ids=str)
def test_each_accuracy_counts_for_position(border: Border) -> None:
    assert border.verdicts(right()) == FLIPS


def test_what_is_above_chance_is_above_the_chance_of_its_table() -> None:
    tables = change(right(), Cells(POSITION, "chance"), 0.5)
    claim, relu = "P3 without position", at("identity", "none", "relu")
    assert Border(claim, relu, 0.5501, 0.55).verdicts(tables) == FLIPS
    for name in ("exp", "softplus"):
        cells = at("identity", "none", name)
        assert Border(claim, cells, 0.55, 0.5501).verdicts(tables) == FLIPS
    for stem_words, stem in P6_STEMS:
        tables = change(right(), Cells(stem, "chance"), 0.5)
        exp = under(stem, "power", "exp")
        assert Border(f"P6 exp fails{stem_words}", exp, 0.6, 0.6001).verdicts(tables) == FLIPS


@pytest.mark.parametrize("task", [RECALL, COPYING])
@pytest.mark.parametrize(
    ("evolution", "larger"),
    [("scalar_gla", 0.65), ("scalar_mamba2", 0.65), ("diagonal_gla", 0.75),
     ("diagonal_mamba2", 0.75)],
)  # fmt: skip
def test_a_larger_structure_is_at_most_a_point_below_a_smaller(
    task: str, evolution: str, larger: float
) -> None:
    """Of which the better parameterization counts."""
    claim = f"P4 structure, {task.replace('_', ' ')}"
    border = Border(claim, of(evolution, task), larger + 0.01, larger + 0.01 + 1e-6)
    assert border.verdicts(right()) == FLIPS
    other = Border(
        f"P4 structure, {(COPYING if task == RECALL else RECALL).replace('_', ' ')}",
        of(evolution, task), 1.0, 0.0,
    )  # fmt: skip
    assert other.verdicts(right()) == ("reproduced", "reproduced")


def flat(accuracy: float) -> Tables:
    return change(right(), Cells(EVOLUTION, "accuracy"), accuracy)


@pytest.mark.parametrize("task", [RECALL, COPYING])
@pytest.mark.parametrize("evolution", HOUSEHOLDER)
def test_any_householder_may_be_the_one_above_scalar(task: str, evolution: str) -> None:
    claim = f"P4 structure, {task.replace('_', ' ')}"
    border = Border(claim, of(evolution, task), 0.51 + 1e-6, 0.51)
    assert border.verdicts(flat(0.5)) == FLIPS


@pytest.mark.parametrize("evolution", ["diagonal_gla", "diagonal_mamba2"])
def test_either_diagonal_may_be_the_one_not_below_scalar(evolution: str) -> None:
    tables = flat(0.4)
    for name, accuracy in (("scalar_gla", 0.5), (HOUSEHOLDER[0], 0.7)):
        tables = change(tables, of(name), accuracy)
    border = Border("P4 structure, fuzzy recall", of(evolution), 0.49, 0.49 - 1e-6)
    assert border.verdicts(tables) == FLIPS


@pytest.mark.parametrize("task", [RECALL, COPYING])
@pytest.mark.parametrize(
    ("one", "structure"),
    [
        *((f"scalar_{name}", "scalar") for name in ("gla", "mamba2")),
        *((f"diagonal_{name}", "diagonal") for name in ("gla", "mamba2")),
        *((name, " ".join(name.split("_")[:2])) for name in HOUSEHOLDER),
    ],
)
def test_any_structure_may_be_the_one_whose_parameterization_matters(
    task: str, one: str, structure: str
) -> None:
    """More than two points apart, whichever of the two is the better."""
    border = Border("P4 parameterization", of(one, task), 0.02 + 1e-6, 0.02)
    assert border.verdicts(flat(0.0)) == FLIPS
    judgement = judge("P4 parameterization", change(flat(0.5), of(one, task), 0.7))
    words = f"largest gap 0.200: {structure} on {task.replace('_', ' ')}"
    assert judgement.statistic == words


def normalization_borders() -> list[Border]:
    borders = []
    for words, stem in P6_STEMS:
        for name in READOUTS:
            borders.append(Border(f"P6 sum{words}", under(stem, "row_sum", name), *SOLVED))
        for eta in ("one", "power"):
            cells = under(stem, eta, "exp")
            borders.append(Border(f"P6 exp fails{words}", cells, 0.2, 0.2 + 1e-6))
        for name in ("softplus", "relu"):
            claim, one = f"P6 power{words}", under(stem, "one", name)
            borders.append(Border(claim, under(stem, "power", name), *SOLVED))
            borders.append(Border(claim, one, *UNSOLVED))
            borders.append(Border(claim, one, 0.5 + 1e-6, 0.5))
    return borders


@pytest.mark.usefixtures("differ")
@pytest.mark.parametrize("border", normalization_borders(), ids=str)
def test_each_accuracy_counts_for_normalization(border: Border) -> None:
    assert border.verdicts(right()) == FLIPS


@pytest.mark.usefixtures("differ")
@pytest.mark.parametrize(("words", "stem"), P6_STEMS)
def test_good_is_above_chance_where_chance_is_good(words: str, stem: str) -> None:
    tables = change(right(), Cells(stem, "chance"), 0.6)
    for name in ("softplus", "relu"):
        tables = change(tables, under(stem, "one", name), 0.8)
    for name in ("softplus", "relu"):
        border = Border(f"P6 power{words}", under(stem, "one", name), 0.65 + 1e-6, 0.65)
        assert border.verdicts(tables) == FLIPS


@pytest.mark.parametrize(("words", "stem"), P6_STEMS)
def test_power_is_judged_only_where_it_changes_the_function(
    monkeypatch: pytest.MonkeyPatch, differ: list[Any], words: str, stem: str
) -> None:
    assert verdict(f"P6 power{words}", right()) == "reproduced"
    shared = [f"experiment={stem}", "model/readout=softplus"]
    one, power = ({*shared, f"model/normalization={name}"} for name in ("one", "power"))
    assert [set(design) for design in differ[0]] == [one, power]
    monkeypatch.setattr(principle6, "same_function", lambda *_: (True, "the same"))
    judgement = judge(f"P6 power{words}", change(right(), under(stem, "one", "relu"), CHANCE))
    assert judgement.verdict == "invariant by construction"
    accuracies = "eta = 1: 0.70, 0.10; c^i: 0.98, 0.99 (softplus, relu)"
    assert judgement.statistic == f"the same; {accuracies}"
