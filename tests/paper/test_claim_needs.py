"""What a claim needs: each point that it rests on, with all of its runs, and no other."""

from collections.abc import Mapping
from itertools import product

import pandas as pd
import pytest

from coefdyn.paper import principle6
from tests.paper.right_tables import (
    ALL,
    CLAIMS,
    COPYING,
    EVOLUTION,
    KERNEL,
    MEMORY,
    NORMALIZATION,
    PERPLEXITY,
    POSITION,
    READOUT,
    RECALL,
    SCALING,
    WIKITEXT,
    ZEROS,
    Cells,
    Tables,
    change,
    chosen,
    judge,
    right,
    verdict,
)

Rows = Mapping[str, list[Mapping[str, object]]]  # by stem: which
FUNCTIONS = ("exp", "softplus", "relu", "elu_plus_one")


def of(name: str, values: list[str] | tuple[str, ...]) -> list[Mapping[str, object]]:
    return [{name: value} for value in values]


def pairs(names: tuple[str, ...]) -> list[Mapping[str, object]]:
    return [{"task": t, "readout": name} for t, name in product((RECALL, COPYING), names)]


def _needs() -> dict[str, Rows]:
    """Of the claims whose points count one by one. Those of P5 pool them, and are tested there."""
    needs: dict[str, Rows] = {
        "P2.1 kernels, near zero": {KERNEL: [{}], READOUT: pairs(FUNCTIONS)},
        "P2.1 kernels, accuracy": {KERNEL: [{}], READOUT: pairs(FUNCTIONS)},
        "P2.1 kernels and identity": {
            KERNEL: pairs(("kernel_exp", "kernel_softplus", "kernel_elu_plus_one")),
            READOUT: pairs(("identity",)),
        },
        "P2.2 limit": {ZEROS: [{}]},
        "P2.2 length": {ZEROS: [{}]},
        "P3 position solves": {
            POSITION: [{"evolution": "constant"}, {"position": "learned"}],
        },
        "P3 without position": {POSITION: [{"evolution": "identity", "position": "none"}]},
        "P4 structure, fuzzy recall": {EVOLUTION: [{"task": RECALL}]},
        "P4 structure, selective copying": {EVOLUTION: [{"task": COPYING}]},
        "P4 parameterization": {EVOLUTION: [{}]},
        "P5 language, gap": {
            WIKITEXT: of("model", ["mamba2_unscaled", "mamba2_inverse_sqrt", "softmax_attention",
                                   "softmax_attention_unscaled"])
        },
        "P5 language, Delta": {WIKITEXT: of("model", ["mamba2", "mamba2_inverse_sqrt"])},
        "All principles, language": {ALL: [{}]},
    }  # fmt: skip
    for task in (RECALL, COPYING, MEMORY):
        for words in ("set to near zero", "near zero to accuracy", "ratio to accuracy"):
            needs[f"P2 {task.replace('_', ' ')}, {words}"] = {READOUT: [{"task": task}]}
    for words, stem in zip(("", " (no post-norm)"), NORMALIZATION, strict=True):
        needs[f"P6 sum{words}"] = {stem: [{"normalization": "row_sum"}]}
        exp = [{"normalization": eta, "readout": "exp"} for eta in ("one", "power")]
        needs[f"P6 exp fails{words}"] = {stem: exp}
        softplus_and_relu = product(("one", "power"), ("softplus", "relu"))
        needs[f"P6 power{words}"] = {
            stem: [{"normalization": eta, "readout": name} for eta, name in softplus_and_relu]
        }
    return needs


NEEDS = _needs()


def needed(table: pd.DataFrame, rows: list[Mapping[str, object]]) -> "pd.Series[bool]":
    return pd.concat([chosen(table, where) for where in rows], axis=1).any(axis=1)


@pytest.mark.parametrize("claim", NEEDS)
def test_a_claim_needs_each_of_its_points_and_no_other(
    monkeypatch: pytest.MonkeyPatch, claim: str
) -> None:
    monkeypatch.setattr(principle6, "same_function", lambda *_: (False, "they differ"))
    tables, few = right(), Tables()
    assert CLAIMS[claim].needs == tuple(NEEDS[claim])
    for stem, rows in NEEDS[claim].items():
        few[stem] = tables[stem][needed(tables[stem], rows)]
    assert verdict(claim, few) == "reproduced"
    for stem, table in few.items():
        for place in table.index:
            assert verdict(claim, few | {stem: table.drop(place)}) == "not enough runs"
            some = table.assign(missing=(table.index == place).astype(int))
            judgement = judge(claim, few | {stem: some})
            assert judgement.verdict == "not enough runs"
            assert judgement.statistic == f"{stem} lacks 1 runs"


def test_without_tables_nothing_is_claimed() -> None:
    for claim in CLAIMS.values():
        judgement = claim.judge({})
        assert judgement.verdict == "not enough runs"
        assert judgement.statistic.startswith("no table of ")


@pytest.mark.parametrize(
    ("claim", "cells"),
    [
        ("P2.1 kernels, near zero", Cells(KERNEL, "near_zero")),
        ("P2.1 kernels, accuracy", Cells(READOUT, "accuracy", {"readout": "relu"})),
        ("P2.1 kernels and identity", Cells(READOUT, "near_zero", {"readout": "identity"})),
        ("P3 position solves", Cells(POSITION, "accuracy", {"position": "learned"})),
        ("P4 parameterization", Cells(EVOLUTION, "accuracy", {"evolution": "scalar_gla"})),
        ("P5 language, Delta", Cells(WIKITEXT, PERPLEXITY, {"model": "mamba2"})),
        ("All principles, language", Cells(ALL, PERPLEXITY, {"model": "all_principles"})),
        ("P6 sum", Cells(NORMALIZATION[0], "accuracy", {"readout": "exp"})),
    ],
)
def test_a_value_that_is_not_known_is_not_judged(claim: str, cells: Cells) -> None:
    judgement = judge(claim, change(right(), cells, float("nan")))
    assert judgement.verdict == "not enough runs"
    assert f"{cells.stem} has no {cells.column} for " in judgement.statistic
    assert judgement.statistic.endswith(": all its runs diverged")


@pytest.mark.parametrize(
    ("stem", "claim"), [(POSITION, "P3 position solves"), (ALL, "All principles, language")]
)
def test_two_points_where_a_claim_is_about_one_are_no_point(stem: str, claim: str) -> None:
    table = right()[stem]
    judgement = judge(claim, {stem: pd.concat([table, table.head(1)])})
    assert judgement.verdict == "not enough runs"
    assert judgement.statistic == f"{stem} has 2 points where the claim is about one"


def test_a_point_that_is_not_there_is_named() -> None:
    tables = {POSITION: right()[POSITION].iloc[1:]}
    assert judge("P3 position solves", tables).statistic == (
        f"{POSITION} has no point with evolution=identity, position=learned, readout=exp"
    )


@pytest.mark.parametrize("stem", SCALING)
def test_missing_runs_are_missed_by_what_pools_them(stem: str) -> None:
    claims = [claim for claim in CLAIMS.values() if claim.needs == (stem,)]
    assert len(claims) == 6
    tables = change(right(), Cells(stem, "missing", {"model": "mamba2", "n_state": 16}), 1)
    for claim in claims[2], *claims[4:]:
        assert claim.judge(tables).statistic == f"{stem} lacks 4 runs"
