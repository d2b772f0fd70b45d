"""Hybrids: presets that take turns over the layers."""

import copy

import pytest
import torch

from coefdyn.config.build import build_model
from coefdyn.config.compose import Config, compose
from coefdyn.config.grid import plan
from coefdyn.config.identity import run_id
from coefdyn.config.pattern import designs_of, layers_of
from coefdyn.errors import ConfigError
from coefdyn.model.coefficient_statistics import coefficient_statistics
from coefdyn.principles.check import check
from coefdyn.results.tables import axes_of_run

KINDS = "[mamba2,mamba2,deltaproduct]"


def hybrid(pattern: str = KINDS, layers: int = 3, *more: str) -> Config:
    return compose(["scale=smoke", f"model.pattern={pattern}", f"model.n_layers={layers}", *more])


def evolutions(config: Config) -> list[str]:
    return [type(b.mixer.design.evolution).__name__ for b in build_model(config).blocks]


def test_a_pattern_repeats_over_the_layers() -> None:
    kinds = ["Mamba2Decay", "Mamba2Decay", "Householder"]
    assert evolutions(hybrid()) == kinds
    assert evolutions(hybrid(layers=6)) == [*kinds, *kinds]


@pytest.mark.parametrize("name", ["gla", "gated_deltanet", "mlstm", "retnet"])
def test_a_pattern_of_one_preset_is_that_preset(name: str) -> None:
    """Also in what is no slot: unit_qk, max_strength, the block. Positions are the model's own."""
    plain = compose(["scale=smoke", f"model={name}", "model/position=learned"])
    patterned = compose(["scale=smoke", f"model.pattern=[{name}]"])
    one, other = build_model(plain), build_model(patterned)
    assert str(one) == str(other)
    tokens = torch.randint(8, (2, 12))
    assert torch.equal(one(tokens), other(tokens))


def test_layers_share_sizes_and_nothing_else() -> None:
    config = hybrid("[all_but_p2]", 2, "model.factor=0.5")
    model = config.settings.model
    for _, layer in layers_of(config):
        settings = layer.settings.model
        assert settings.evolution["c"] == 0.5
        assert (settings.d_model, settings.n_heads) == (model.d_model, model.n_heads)
        assert settings.pattern is None


def test_statistics_are_per_layer() -> None:
    """deltaproduct has two coefficients for each pair of steps."""
    model = build_model(hybrid("[mamba2,rope,deltaproduct]"))
    statistics = coefficient_statistics(model, torch.randint(8, (4, 12)))
    shares = statistics["per_head"]["near_zero"]
    assert len(shares) == 3
    weights = torch.tensor([1.0, 1.0, 2.0])
    mean = (torch.tensor(shares).mean(1) * weights).sum() / weights.sum()
    assert statistics["near_zero"] == pytest.approx(mean.item())


def test_every_design_is_checked() -> None:
    report = check(hybrid("[mamba2,rope,mamba2]"))
    names = {line.principle.partition(":")[0] for line in report.lines}
    assert names == {"mamba2", "rope"}
    assert "rope: output class" in report.facts


def test_a_run_is_named_by_its_slots_and_not_by_its_presets() -> None:
    config = hybrid("[gla,mamba2]", 2)
    assert config.run_id != hybrid("[mamba2,gla]", 2).run_id
    assert config.run_id != hybrid("[gla,gla]", 2).run_id
    renamed = copy.deepcopy(config.values)
    model = renamed["model"]
    model["layers"] = {"mine": model["layers"].pop("gla"), **model["layers"]}
    model["pattern"] = ["mine", "mamba2"]
    assert run_id(renamed) == config.run_id
    changed = copy.deepcopy(config.values)
    changed["model"]["layers"]["gla"]["evolution"]["temperature"] = 8.0
    assert run_id(changed) != config.run_id
    other = copy.deepcopy(config.values)
    other["model"]["evolution"]["c"] = 1.0  # of the preset that the pattern replaces
    assert run_id(other) == config.run_id


def test_a_record_is_enough_to_build_its_model() -> None:
    config = hybrid()
    again = Config(copy.deepcopy(config.values), config.choices)
    assert str(build_model(again)) == str(build_model(config))
    assert list(designs_of(again)) == ["mamba2", "deltaproduct"]


@pytest.mark.parametrize(
    ("pattern", "layers", "words"),
    [
        (KINDS, 4, ["3 entries", "model.n_layers=4", "set model.n_layers=6"]),
        ("[mamba2,softmax]", 2, ["softmax is none", "model.pattern=[softmax_attention]"]),
        ("mamba2", 2, ["must be"]),
        ("[]", 2, ["at least one preset, or be null"]),
    ],
)
def test_bad_patterns_are_refused_with_the_remedy(
    pattern: str, layers: int, words: list[str]
) -> None:
    with pytest.raises(ConfigError) as error:
        build_model(hybrid(pattern, layers))
    for word in words:
        assert word in str(error.value)


def test_a_grid_of_hybrids_has_a_row_for_each() -> None:
    """In a table, slots that differ by layer are told by the name of the pattern."""
    overrides = ["scale=smoke", "model.pattern=[gla,rope]", "model.n_layers=2", "seed=0,1"]
    runs = plan(overrides)
    assert [run.values["seed"] for run in runs] == [0, 1]
    row = axes_of_run(runs[0])
    assert (row["model"], row["evolution"], row["position"]) == ("gla+rope", "hybrid", "learned")


def test_a_pattern_and_a_foreign_mixer_exclude_each_other() -> None:
    mixer = "++model.mixer={_target_: torch.nn.Identity}"
    with pytest.raises(ConfigError, match="exclude each other"):
        build_model(hybrid(KINDS, 3, mixer))
