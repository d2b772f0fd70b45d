"""run_id names what a run computes, whatever moves or is added around it."""

import json
from pathlib import Path
from typing import Any

import pytest

from coefdyn.config import identity
from coefdyn.config.build import SLOTS
from coefdyn.config.compose import compose
from coefdyn.config.identity import run_id
from coefdyn.config.plugins import OURS, trusted_class

IDS: dict[str, str] = json.loads(
    (Path(__file__).parents[1] / "assets" / "ids.json").read_text()
)  # overrides -> run_id, as the first version that wrote it did


@pytest.fixture(scope="module")
def configurations() -> dict[str, dict[str, Any]]:
    return {text: compose(text.split()).values for text in IDS}


def test_ids_are_what_they_were(configurations: dict[str, dict[str, Any]]) -> None:
    assert {text: run_id(values) for text, values in configurations.items()} == IDS
    assert len(set(IDS.values())) == len(IDS)


def test_an_argument_at_its_neutral_value_changes_no_id(
    configurations: dict[str, dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a later version would add one: to every slot, task and section."""
    for section in ("", "model", "trainer", "optimizer", "task"):
        known = identity.NEUTRAL.get(section, {})
        monkeypatch.setitem(identity.NEUTRAL, section, {**known, "added": 1.0})
    for text, values in configurations.items():
        values = json.loads(json.dumps(values))
        slots = [values["task"], *(values["model"][slot] for slot in SLOTS)]
        slots += [slot["decay"] for slot in slots if "decay" in slot]
        for slot in slots:
            kind = trusted_class(slot["_target_"], (OURS, "torch"))
            monkeypatch.setattr(kind, "neutral", {"added": 1.0}, raising=False)
        places = [values, values["model"], values["trainer"], values["optimizer"], *slots]
        for place in places:
            place["added"] = 1  # as whole numbers may be written
        assert run_id(values) == IDS[text]
        for place in places:
            for other in (0.6, True):
                place["added"] = other
                assert run_id(values) != IDS[text]
            place["added"] = 1.0


def test_where_a_class_lies_is_no_part_of_the_id(
    configurations: dict[str, dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    from coefdyn.mixer.slots import readout, scaling

    values = json.loads(json.dumps(configurations["model=softmax_attention scale=smoke"]))
    monkeypatch.setattr(scaling, "Exp", readout.Exp, raising=False)
    values["model"]["readout"]["_target_"] = "coefdyn.mixer.slots.scaling.Exp"
    assert run_id(values) == IDS["model=softmax_attention scale=smoke"]
    values["model"]["readout"]["_target_"] = "coefdyn.mixer.slots.readout.Relu"
    assert run_id(values) != IDS["model=softmax_attention scale=smoke"]


def test_values_that_only_slots_use_count_through_them() -> None:
    plain = compose(["scale=smoke"]).run_id
    for unused in ("model.factor=0.5", "model.base=2", "model.max_strength=1", "task.name=mine"):
        changed = compose(["scale=smoke"]).with_values(
            {unused.partition("=")[0]: 0.5 if "name" not in unused else "mine"}
        )
        assert changed.run_id == plain
    used = ["scale=smoke", "model/evolution=constant"]
    assert compose([*used, "model.factor=0.5"]).run_id != compose(used).run_id
