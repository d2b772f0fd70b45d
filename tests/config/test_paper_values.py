"""The defaults of conf/ are the numbers of the paper: tests/config/paper.py has them, typed in."""

import math
from functools import cache
from typing import Any

import pytest
from hydra import compose as hydra_compose
from hydra import initialize_config_dir
from omegaconf import DictConfig, OmegaConf

from coefdyn.config.compose import Config, Draft, raw
from coefdyn.config.multirun import sweep_points
from coefdyn.config.plugins import CONF, options
from tests.config.composed import composed, plain
from tests.config.own import OURS, WITHOUT_PILOTS
from tests.config.paper import (
    AXES,
    FIXED,
    MODEL,
    PRESETS,
    SAME_AT_EVERY_SCALE,
    TASKS,
    TEST,
    TRAINING,
    VARIANTS,
    WIKITEXT,
    Row,
)
from tests.config.small_scales import ALONE, LEFT_OUT, SCALES, SEEDS, SET, axes

# Overrides, and what the configuration then is.
STATED: dict[str, Row] = {
    **{f"model={name} scale=smoke": SAME_AT_EVERY_SCALE | row for name, row in PRESETS.items()},
    **{f"task={name} scale=paper": MODEL | TRAINING | TEST | row for name, row in TASKS.items()},
    "task=wikitext103 scale=paper": MODEL | TRAINING | WIKITEXT,
    "experiment=all_principles_lm scale=paper model=all_but_p6": {"model.evolution.c": 1.00607},
}


def in_force(config: Config, keys: Row) -> Row:
    """What a configuration has under these keys: the name of a choice, or a value."""
    found: Row = {}
    for key in keys:
        if key in config.choices:
            found[key] = config.choices[key]
            continue
        node: Any = config.values
        for part in key.split("."):
            node = node[part]
        found[key] = node
    return found


@pytest.mark.parametrize("overrides", STATED)
def test_conf_says_what_the_paper_says(overrides: str) -> None:
    assert in_force(composed(overrides), STATED[overrides]) == STATED[overrides]


def test_every_preset_task_and_experiment_is_in_the_tables() -> None:
    assert sorted(PRESETS) == options("model")
    assert sorted([*TASKS, *VARIANTS, "wikitext103"]) == options("task")
    assert sorted(AXES) == sorted(FIXED)
    assert sorted([*AXES, *OURS, *WITHOUT_PILOTS, "open_choices"]) == options("experiment")


@cache
def declared(experiment: str) -> DictConfig:
    """An experiment at scale=paper, with the grid that it declares to Hydra."""
    with initialize_config_dir(str(CONF), version_base="1.3"):
        given = [f"experiment={experiment}", "scale=paper"]
        return hydra_compose("train", given, return_hydra_config=True)


def fixed(experiment: str, scale: str) -> Config:
    """What is the same in all its runs. Of another scale, what its name alone decides."""
    made = declared(experiment)
    values = {str(key): made[key] for key in made if key != "hydra"}
    draft = Draft(OmegaConf.create(values), dict(made.hydra.runtime.choices))
    return draft.with_values([f"scale.name={scale}"])


@pytest.mark.parametrize("experiment", FIXED)
def test_an_experiment_fixes_what_the_paper_fixes(experiment: str) -> None:
    row = MODEL | TRAINING | FIXED[experiment]
    assert in_force(fixed(experiment, "paper"), row) == row
    for scale, small in SET.get(experiment, {}).items():
        found = in_force(fixed(experiment, scale), small)
        assert found == pytest.approx(small, rel=1e-12), scale


def numbers(text: str, separator: str | None = None) -> list[Any]:
    return [float(v) if v[0].isdigit() else v for v in text.split(separator)]


def test_the_grid_of_a_scale_is_the_one_that_it_names() -> None:
    """All three scales of every experiment: which axes there are, their values and their order."""
    for experiment in AXES:
        made = declared(experiment)
        for scale in ("paper", "lite", "smoke"):
            made.scale.name = scale
            found = {k: numbers(str(v), ",") for k, v in made.hydra.sweeper.params.items()}
            expected = {k: numbers(v) for k, v in axes(experiment, scale).items()}
            assert list(found.items()) == list(expected.items()), f"{experiment} at {scale}"


@pytest.mark.parametrize("experiment", AXES)
def test_runs_are_every_combination_of_the_papers_values_once(experiment: str) -> None:
    points = sweep_points([f"experiment={experiment}", "scale=paper"])
    found: dict[str, dict[str, None]] = {}
    for point in points:
        for part in point[:-2]:  # the last two are the experiment and the scale
            key, _, value = part.partition("=")
            found.setdefault(key, {})[value] = None
    expected = {key: numbers(values) for key, values in AXES[experiment].items()}
    assert {key: numbers(" ".join(values)) for key, values in found.items()} == expected
    assert len(points) == len(set(points)) == math.prod(len(v) for v in expected.values())


def test_the_head_of_an_experiment_tells_how_many_runs_it_has() -> None:
    for experiment in AXES:
        text = (CONF / "experiment" / f"{experiment}.yaml").read_text()
        counts = [
            math.prod(len(v.split()) for v in axes(experiment, scale).values())
            for scale in ("paper", "lite", "smoke")
        ]
        paper, lite, smoke = counts
        rates = len(axes(experiment, "lite")["optimizer.lr"].split())
        designs = lite // rates - LEFT_OUT.get(experiment, 0)
        alone = ALONE.get(experiment, 0) if rates > 1 else designs
        pilots, seeds = (designs - alone) * rates, SEEDS.get(experiment, 3) * designs
        at_lite = f"{pilots} pilots + {seeds} at lite" if pilots else f"{seeds} at lite"
        words = f"# Runs: {paper} at paper scale, {at_lite}, {smoke} at smoke"
        assert words in text, experiment
        assert len(sweep_points([f"experiment={experiment}", "scale=lite"])) == pilots + alone
        grid = plain(CONF / "experiment" / f"{experiment}.yaml")["grid"]["lite"]
        assert grid["seeds"] == SEEDS.get(experiment, 3)


@pytest.mark.parametrize("scale", SCALES)
def test_the_sizes_of_the_small_scales(scale: str) -> None:
    assert plain(CONF / "scale" / f"{scale}.yaml") == SCALES[scale]


def test_every_size_comes_from_its_own_place_in_the_scale() -> None:
    """d_model, n and d_v are equal at every scale, so their values could not tell."""
    written, of_task = raw([], "train"), "${scale.${task.name}"
    for section in ("model", "optimizer", "trainer"):
        for key in SCALES["lite"]["noisy_recall"][section]:
            assert written[section][key] == f"{of_task}.{section}.{key}}}"
    assert written["model"]["vocab_size"] == "${task.vocab_size}"
    assert written["model"]["max_length"] == "${task.seq_len}"
    for name, (task, settings) in VARIANTS.items():
        given = {"defaults": [task, "_self_"]} | settings
        assert plain(CONF / "task" / f"{name}.yaml") == given
    for name in (name for name in options("task") if name not in VARIANTS):
        task = plain(CONF / "task" / f"{name}.yaml")
        assert task["name"] == name
        assert task.get("seed", "${seed}") == "${seed}"
        for key in SCALES["lite"][name]["task"]:
            place = f"${{scale.{name}.task.{key}}}"
            assert task[key] == place if key != "corpus" else task["data"].endswith("/" + place)
