"""Tables 1 and 2 come from traits: what the paper has, and what outputs really are."""

import numpy as np
import pytest

from coefdyn.paper.space import EXAMPLES, VALUES, architectures, draw, outputs

# As the paper has it, but for normalized attention: conical needs nonnegative features, and the
# identity has none.
TABLE_2 = {"softmax attention": "convex", "linear attention": "convex"}


def test_table_2_says_what_each_architecture_can_make() -> None:
    found = {row.name: row.output for row in architectures()}
    assert len(found) == 8
    assert found == dict.fromkeys(found, "linear") | TABLE_2


def test_only_softmax_attention_has_no_cheap_recurrence() -> None:
    assert [row.name for row in architectures() if not row.recurrent] == ["softmax attention"]


@pytest.mark.parametrize("output", EXAMPLES)
def test_outputs_lie_where_their_class_says(output: str) -> None:
    weights = np.linalg.solve(VALUES.T, outputs(output).T).T
    sums = np.allclose(weights.sum(1), 1), bool((weights >= -1e-9).all())
    expected = {"convex": (True, True), "conical": (False, True), "affine": (True, False),
                "linear": (False, False)}  # fmt: skip
    assert sums == expected[output]


def test_a_panel_per_class() -> None:
    assert [axes.get_title().split(":")[0] for axes in draw().axes] == list(EXAMPLES)
