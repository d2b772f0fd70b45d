"""Tables 1 and 2 come from traits: what the paper has, and what outputs really are."""

import numpy as np
import pytest

from coefdyn.paper.looks import NEWER, TABLE_1
from coefdyn.paper.space import EXAMPLES, VALUES, architectures, draw, outputs

# As the paper has it, but for normalized attention: conical needs nonnegative features, and the
# identity has none.
TABLE_2 = {"softmax attention": "convex", "linear attention": "convex"}


def test_table_2_says_what_each_architecture_can_make() -> None:
    found = {row.name: row.output for row in architectures()}
    assert len(found) == 8 + 13
    old = {name: found[name] for name in TABLE_1.values()}
    assert old == dict.fromkeys(old, "linear") | TABLE_2


def test_only_designs_under_exp_have_no_cheap_recurrence() -> None:
    expensive = [row.name for row in architectures() if not row.recurrent]
    under_exp = ["rope", "alibi", "fox", "wall", "path", "path_fox"]
    assert expensive == ["softmax attention", *(NEWER[name] for name in under_exp)]


@pytest.mark.parametrize("output", EXAMPLES)
def test_outputs_lie_where_their_class_says(output: str) -> None:
    weights = np.linalg.solve(VALUES.T, outputs(output).T).T
    sums = np.allclose(weights.sum(1), 1), bool((weights >= -1e-9).all())
    expected = {"convex": (True, True), "conical": (False, True), "affine": (True, False),
                "linear": (False, False)}  # fmt: skip
    assert sums == expected[output]


def test_a_panel_per_class() -> None:
    assert [axes.get_title().split(":")[0] for axes in draw().axes] == list(EXAMPLES)
