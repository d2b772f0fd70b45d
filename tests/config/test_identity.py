"""run_id names what a run computes, whatever moves or is added around it."""

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest

from coefdyn.config import identity
from coefdyn.config.build import SLOTS
from coefdyn.config.compose import compose
from coefdyn.config.identity import run_id
from coefdyn.config.plugins import OURS, trusted_class
from tests.config.composed import IDS, composed

Values = dict[str, Any]


@pytest.fixture(scope="module")
def configurations() -> dict[str, Values]:
    return {text: composed(text).values for text in IDS}


def test_ids_are_what_they_were(configurations: dict[str, Values]) -> None:
    assert {text: run_id(values) for text, values in configurations.items()} == IDS
    assert len(set(IDS.values())) == len(IDS)


def test_an_argument_at_its_neutral_value_changes_no_id(
    configurations: dict[str, Values], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a later version would add one: to every slot, task and section."""
    for section in ("", "model", "trainer", "optimizer", "task"):
        known = identity.NEUTRAL.get(section, {})
        monkeypatch.setitem(identity.NEUTRAL, section, {**known, "novel": 1.0})
    for text, values in configurations.items():
        values = json.loads(json.dumps(values))
        slots = [values["task"], *(values["model"][slot] for slot in SLOTS)]
        slots += [slot["decay"] for slot in slots if "decay" in slot]
        for slot in slots:
            kind = trusted_class(slot["_target_"], (OURS, "torch"))
            monkeypatch.setattr(
                kind, "neutral", {**getattr(kind, "neutral", {}), "novel": 1.0}, raising=False
            )
        places = [values, values["model"], values["trainer"], values["optimizer"], *slots]
        for place in places:
            place["novel"] = 1  # as whole numbers may be written
        assert run_id(values) == IDS[text]
        for place in places:
            for other in (0.6, True):
                place["novel"] = other
                assert run_id(values) != IDS[text]
            place["novel"] = 1.0


def test_where_a_class_lies_is_no_part_of_the_id(
    configurations: dict[str, Values], monkeypatch: pytest.MonkeyPatch
) -> None:
    from coefdyn.mixer.slots import readout, scaling

    values = json.loads(json.dumps(configurations["model=softmax_attention scale=smoke"]))
    monkeypatch.setattr(scaling, "Exp", readout.Exp, raising=False)
    values["model"]["readout"]["_target_"] = "coefdyn.mixer.slots.scaling.Exp"
    assert run_id(values) == IDS["model=softmax_attention scale=smoke"]
    values["model"]["readout"]["_target_"] = "coefdyn.mixer.slots.readout.Relu"
    assert run_id(values) != IDS["model=softmax_attention scale=smoke"]


# Where and how a run is computed, or where its values came from: a leaf whose path begins so is
# no part of the name. Every other leaf is. Written here by hand, not taken from identity.py.
WHERE_AND_HOW = (
    "paths.",
    "logger",
    "plugins",
    "force",
    "check",
    "population.",
    "scale.",
    "grid.",
    "task.name",
    "trainer.devices.",
    "trainer.checkpoint_seconds",
    "model.backend",
    # These count where a slot uses them, as an argument of that slot.
    "model.max_length",
    "model.factor",
    "model.base",
    "model.max_strength",
)
# With a mixer from elsewhere, the design that it stands in place of is no part either.
OF_THE_DESIGN = (
    "model.evolution.",
    "model.scaling.",
    "model.readout.",
    "model.normalization.",
    "model.preprocess.",
    "model.unit_qk",
)
# Together they have every section, every class of task and slots inside slots.
LOOKED_AT = (
    "model=softmax_attention scale=smoke",
    "model=gated_deltanet scale=smoke logger=wandb trainer=cuda",
    "model=linear_attention scale=smoke task=wikitext103",
    "experiment=principle6_normalization scale=smoke model/normalization=power",
    "task=memorization scale=paper",
    "task=fuzzy_recall scale=paper",
    "task=selective_copying scale=paper",
    "task=mqar scale=paper",
    "task=group_word scale=paper",
)


def leaves(node: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    if isinstance(node, dict) and node:
        for key, inner in node.items():
            yield from leaves(inner, (*path, key))
    else:
        yield path


def another(value: Any, name: str) -> Any:
    """A value of the same kind that is not the same."""
    if name == "_target_":
        return "torch.nn.Flatten"
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value + 1
    if isinstance(value, list):
        return [*value[:-1], another(value[-1], "")] if value else ["x"]
    return f"{value}_" if isinstance(value, str) else {"_target_": "torch.nn.Flatten"}


def changed(values: Values, path: tuple[str, ...]) -> Values:
    made = copy.deepcopy(values)
    *parents, last = path
    node = made
    for parent in parents:
        node = node[parent]
    node[last] = another(node[last], last)
    return made


def assert_counts_unless(values: Values, left_out: tuple[str, ...]) -> None:
    """Both ways: what is left out changes nothing, and whatever else there is does."""
    known = run_id(values)
    for path in leaves(values):
        name = ".".join(path)
        same = run_id(changed(values, path)) == known
        assert same == (name.startswith(left_out) or path[-1] == "_partial_"), name


@pytest.mark.parametrize("text", LOOKED_AT)
def test_every_value_counts_that_does_not_say_where_or_how(text: str) -> None:
    assert_counts_unless(composed(text).values, WHERE_AND_HOW)


def test_a_design_that_a_foreign_mixer_replaces_does_not_count() -> None:
    values = copy.deepcopy(composed(LOOKED_AT[1]).values)
    values["model"]["mixer"] = {"_target_": "torch.nn.Identity", "size": 3}
    assert_counts_unless(values, WHERE_AND_HOW + OF_THE_DESIGN)


def test_values_that_only_slots_use_count_through_them() -> None:
    plain = ["scale=smoke", "model/position=none"]  # no slot of it uses any of these
    for slot, value in (
        ("evolution=constant", "factor=0.5"),
        ("normalization=power", "base=2"),
        ("evolution=householder_key_learned", "max_strength=1"),
        ("position=learned", "max_length=99"),
    ):
        used = ["scale=smoke", f"model/{slot}"]
        assert compose([*plain, f"model.{value}"]).run_id == compose(plain).run_id, value
        assert compose([*used, f"model.{value}"]).run_id != compose(used).run_id, slot


def test_a_number_is_the_same_however_it_is_written() -> None:
    values = copy.deepcopy(composed(LOOKED_AT[0]).values)
    known = run_id(values)
    assert values["optimizer"]["weight_decay"] == 0
    for written, same in ((0, True), (0.0, True), (False, False), ("0", False), (1e-9, False)):
        values["optimizer"]["weight_decay"] = written
        assert (run_id(values) == known) == same, written
