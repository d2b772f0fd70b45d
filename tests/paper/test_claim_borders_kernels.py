"""Where P2.1 and P2.2 end: each kernel, task and pair of them counts, up to its border."""

from itertools import product

import pytest

from tests.paper.right_tables import (
    COPYING,
    FLIPS,
    KERNEL,
    READOUT,
    RECALL,
    ZEROS,
    Border,
    Cells,
    Tables,
    change,
    chosen,
    judge,
    right,
    verdict,
)

PAIRS = list(product((RECALL, COPYING), ("exp", "softplus", "relu", "elu_plus_one")))


def cell(column: str, task: str, readout: str, stem: str = KERNEL) -> Cells:
    return Cells(stem, column, {"task": task, "readout": readout})


def score(tables: Tables, task: str, name: str) -> float:
    table = tables[READOUT]
    return float(table[chosen(table, {"task": task, "readout": name})]["accuracy"].iloc[0])


def kernel_borders() -> list[Border]:
    borders = []
    for task, name in PAIRS:
        level = score(right(), task, name)  # which is also its near-zero fraction
        for claim, column, margin in (
            ("P2.1 kernels, near zero", "near_zero", 0.0),
            ("P2.1 kernels, accuracy", "accuracy", 0.01),
        ):
            cells = cell(column, task, f"kernel_{name}")
            borders.append(Border(claim, cells, level + margin, level + margin + 1e-6))
    for task, name in product((RECALL, COPYING), ("elu_plus_one", "softplus", "exp")):
        cells = cell("near_zero", task, f"kernel_{name}")
        borders.append(Border("P2.1 kernels and identity", cells, 0.3 + 1e-6, 0.3))
    return borders


@pytest.mark.parametrize("border", kernel_borders(), ids=str)
def test_each_pair_alone_can_refute_what_kernels_do(border: Border) -> None:
    assert border.verdicts(right()) == FLIPS


@pytest.mark.parametrize(("column", "margin"), [("near_zero", 0.0), ("accuracy", 0.01)])
def test_more_than_half_of_the_kernels_are_lower(column: str, margin: float) -> None:
    """Three pairs are equal; the fourth is what counts."""
    tables = right()
    for task, name in PAIRS[:3]:
        equal = score(tables, task, name)
        tables = change(tables, cell(column, task, f"kernel_{name}"), equal)
    task, name = PAIRS[3]
    border = score(tables, task, name) - margin
    cells = cell(column, task, f"kernel_{name}")
    claim = f"P2.1 kernels, {column}".replace("_", " ")
    assert Border(claim, cells, border - 1e-6, border).verdicts(tables) == FLIPS
    statistic = judge(claim, change(tables, cells, border)).statistic
    assert statistic == "lower in 4 of 8 pairs, higher in 0"


def test_the_kernel_of_relu_need_not_exceed_identity() -> None:
    tables = change(right(), Cells(KERNEL, "near_zero", {"readout": "kernel_relu"}), 0.0)
    assert verdict("P2.1 kernels and identity", tables) == "reproduced"


@pytest.mark.parametrize("readout", ["kernel_softplus", "kernel_exp"])
@pytest.mark.parametrize(
    ("task", "inside", "beyond"), [(RECALL, 1 + 1e-6, 1.0), (COPYING, 4 - 1e-6, 4.0)]
)
def test_each_point_counts_for_zeros(task: str, readout: str, inside: float, beyond: float) -> None:
    """The mean of the longer task, (3 + 3) / 2, is to stay above that of the shorter, 2."""
    cells = cell("mean_zeros", task, readout, ZEROS)
    assert Border("P2.2 length", cells, inside, beyond).verdicts(right()) == FLIPS
    assert Border("P2.2 limit", cells, 7.0, 7 + 1e-6).verdicts(right()) == FLIPS


def test_a_point_has_the_limit_of_its_own_size() -> None:
    large = {"task": RECALL, "readout": "kernel_exp"}
    tables = change(right(), Cells(ZEROS, "zero_limit", large), 15)
    tables = change(tables, Cells(ZEROS, "mean_zeros", large), 10.0)
    assert verdict("P2.2 limit", tables) == "reproduced"
    other = Cells(ZEROS, "mean_zeros", large | {"readout": "kernel_softplus"})
    assert verdict("P2.2 limit", change(tables, other, 10.0)) == "not reproduced"
    # The mean over sequences is held to the limit, one sequence is not.
    single = judge("P2.2 limit", change(right(), Cells(ZEROS, "most_zeros"), 9))
    assert single.verdict == "reproduced"
    assert "9 in one sequence; limit 7" in single.statistic


@pytest.mark.parametrize("claim", ["P2.2 limit", "P2.2 length"])
def test_zeros_of_diverged_runs_are_not_known(claim: str) -> None:
    for task, name in product((RECALL, COPYING), ("kernel_softplus", "kernel_exp")):
        tables = change(right(), cell("mean_zeros", task, name, ZEROS), float("nan"))
        assert verdict(claim, tables) == "not enough runs"


def test_which_task_is_longer_is_read_from_the_table() -> None:
    longer = change(right(), Cells(ZEROS, "seq_len", {"task": COPYING}), 20)
    judgement = judge("P2.2 length", longer)
    assert judgement.verdict == "not reproduced"
    assert judgement.statistic == "2.00 at length 20, 3.00 at 18"
    equal = judge("P2.2 length", change(right(), Cells(ZEROS, "seq_len"), 16))
    assert equal.verdict == "not enough runs"
    assert equal.statistic == "both tasks have length 16 at this scale"
