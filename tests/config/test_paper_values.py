"""The defaults of conf/ are the paper's numbers: tests/config/paper.py has them, typed in by hand.

Slot files hold numbers of their own, such as the rank of GLA's gate: these are listed here.
"""

import math
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hydra import compose as hydra_compose
from hydra import initialize_config_dir
from omegaconf import DictConfig, OmegaConf

from coefdyn.config.build import SLOTS
from coefdyn.config.compose import Config, Draft, raw
from coefdyn.config.multirun import sweep_points
from coefdyn.config.plugins import CONF, options
from tests.config.composed import composed
from tests.config.paper import (
    AXES,
    FIXED,
    MODEL,
    PRESETS,
    SAME_AT_EVERY_SCALE,
    TASKS,
    TEST,
    TRAINING,
    WIKITEXT,
    Row,
)
from tests.config.small_scales import LEFT_OUT, SCALES, SEEDS, SET, axes

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
    assert sorted([*TASKS, "wikitext103"]) == options("task")
    assert sorted(AXES) == sorted(FIXED)
    made_of_others = ["open_choices", "position_schemes"]
    assert sorted([*AXES, *made_of_others]) == options("experiment")


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
        rates = len(axes(experiment, "lite").get("optimizer.lr", "").split())
        pilots = lite - LEFT_OUT.get(experiment, 0) * rates
        seeds = SEEDS.get(experiment, 3) * pilots // rates if rates else 0
        at_lite = f"{pilots} pilots + {seeds} at lite"
        words = f"# Runs: {paper} at paper scale, {at_lite}, {smoke} at smoke"
        same = f"# Runs: {paper} at every scale" if len(set(counts)) == 1 else words
        assert same in text, experiment
        if rates:
            assert len(sweep_points([f"experiment={experiment}", "scale=lite"])) == pilots
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
    for name in options("task"):
        task = plain(CONF / "task" / f"{name}.yaml")
        assert task["name"] == name
        assert task.get("seed", "${seed}") == "${seed}"
        for key in SCALES["lite"][name]["task"]:
            place = f"${{scale.{name}.task.{key}}}"
            assert task[key] == place if key != "corpus" else task["data"].endswith("/" + place)


def plain(path: Path) -> Any:
    """A file as it stands, interpolations as text."""
    return OmegaConf.to_container(OmegaConf.load(path))


GLA = {"rank": 16, "temperature": 16.0}
MAMBA2 = {"rate_range": [1.0, 16.0], "step_range": [0.001, 0.1]}
UNSIGNED, SIGNED = {"signed": False}, {"signed": True}
ROTARY = {"base": 10000.0}
KEY, FREE = {"own_direction": False}, {"own_direction": True}


def householder(direction: Row, learned: bool) -> tuple[str, Row]:
    return "Householder", direction | {"learned": learned} | ({} if learned else {"strength": 2.0})


def decayed(kind: str, numbers: Row) -> tuple[str, Row]:
    """A Householder of learned strength times a decay."""
    inner = {"decay._target_": kind} | {f"decay.{key}": value for key, value in numbers.items()}
    return "Householder", KEY | {"learned": True} | inner


def of(numbers: Row, kind: str, inner: Row) -> Row:
    """The numbers, and those of the evolution it is a factor of."""
    return numbers | {"of._target_": kind} | {f"of.{key}": value for key, value in inner.items()}


def kernel(feature_map: str) -> tuple[str, Row]:
    return "Kernel", {"feature_map._target_": feature_map}


PER_CHANNEL, PER_HEAD = {"per_channel": True}, {"per_channel": False}
# The class of each file, and what it sets that is no size.
FILES: dict[str, tuple[str, Row]] = {
    "evolution/identity": ("Identity", {}),
    "evolution/constant": ("Constant", {}),
    "evolution/scalar_gla": ("GlaDecay", PER_HEAD | GLA | UNSIGNED),
    "evolution/diagonal_gla": ("GlaDecay", PER_CHANNEL | GLA | UNSIGNED),
    "evolution/scalar_mamba2": ("Mamba2Decay", PER_HEAD | MAMBA2 | UNSIGNED),
    "evolution/diagonal_mamba2": ("Mamba2Decay", PER_CHANNEL | MAMBA2 | UNSIGNED),
    "evolution/signed_gla": ("GlaDecay", PER_CHANNEL | GLA | {"temperature": 1.0} | SIGNED),
    "evolution/signed_mamba2": ("Mamba2Decay", PER_HEAD | MAMBA2 | SIGNED),
    "evolution/rotary": ("Rotary", ROTARY),
    "evolution/retention": ("Rotary", of(ROTARY, "HeadDecay", {})),
    "evolution/rotary_householder": (
        "Rotary",
        of(ROTARY, "Householder", KEY | {"learned": True}),
    ),
    "evolution/mamba3": ("InputRotation", of({}, "Mamba2Decay", PER_HEAD | MAMBA2)),
    "evolution/alibi": ("Alibi", {}),
    "evolution/forget": ("Forget", {}),
    "evolution/forget_householder": ("Forget", of({}, "Householder", FREE | {"learned": True})),
    "evolution/rwkv7": ("Rwkv7", {"rank": 16, "decay_range": [-6.0, -1.0]}),
    "evolution/householder_product": ("Householder", KEY | {"learned": True, "repeats": 2}),
    "evolution/gated_householder_product": (
        "Householder",
        decayed("Mamba2Decay", PER_HEAD | MAMBA2)[1] | {"repeats": 2},
    ),
    "evolution/householder_key_fixed": householder(KEY, learned=False),
    "evolution/householder_key_learned": householder(KEY, learned=True),
    "evolution/householder_free_fixed": householder(FREE, learned=False),
    "evolution/householder_free_learned": householder(FREE, learned=True),
    "evolution/gated_householder": decayed("Mamba2Decay", PER_HEAD | MAMBA2),
    "evolution/diagonal_householder": decayed("GlaDecay", PER_CHANNEL | GLA),
    "evolution/exp_forget": ("ExpForget", {"gate_range": [3.0, 6.0]}),
    "scaling/one": ("One", {}),
    "scaling/inverse_sqrt": ("InverseSqrt", {}),
    "scaling/gate": ("Gate", {"inverse_sqrt": False}),
    "scaling/gate_inverse_sqrt": ("Gate", {"inverse_sqrt": True}),
    "scaling/step_size": ("StepSize", {}),
    "scaling/strength_inverse_sqrt": ("Strength", {}),
    "scaling/exp_input_inverse_sqrt": ("ExpInput", {}),
    "readout/exp": ("Exp", {}),
    "readout/softplus": ("Softplus", {}),
    "readout/relu": ("Relu", {}),
    "readout/identity": ("Identity", {}),
    "readout/sigmoid": ("Sigmoid", {}),
    "readout/elu_plus_one": ("EluPlusOne", {}),
    "readout/silu": ("Silu", {}),
    "readout/gelu": ("Gelu", {}),
    "readout/tanh": ("Tanh", {}),
    "readout/relu_squared": ("ReluSquared", {}),
    "readout/polynomial": ("Polynomial", {"coefficients": [0.0, 1.0, 0.5]}),
    "readout/taylor_exp": ("TaylorExp", {"degree": 2}),
    "readout/kernel_relu": kernel("Relu"),
    "readout/kernel_elu_plus_one": kernel("EluPlusOne"),
    "readout/kernel_softplus": kernel("Softplus"),
    "readout/kernel_exp": kernel("Exp"),
    "normalization/one": ("One", {}),
    "normalization/row_sum": ("RowSum", {"eps": 1e-6, "added": 0.0}),
    "normalization/power": ("Power", {}),
    "normalization/exp_linear": ("ExpLinear", {}),
    "normalization/mlstm": ("Mlstm", {}),
    "block/type1": ("Block", {"gated": False, "post_norm": "all"}),
    "block/type2": ("Block", {"gated": True, "post_norm": "all"}),
    "preprocess/none": ("Nothing", {}),
    "preprocess/short_conv": ("ShortConv", {"width": 4, "applies_to": "qkv"}),
    "preprocess/short_conv_z": ("ShortConv", {"width": 3, "applies_to": "z"}),
    "position/none": ("Nothing", {}),
    "position/learned": ("Learned", {"std": 0.02}),
    "position/sinusoidal": ("Sinusoidal", {}),
}
# Arguments that have another name in conf/train.yaml.
RENAMED = {
    ("evolution/constant", "c"): "factor",
    ("normalization/power", "c"): "base",
    **{
        (name, key): "max_strength"
        for name in FILES
        if "householder" in name
        for key in ("strength", "of.strength")
    },
}


def leaves(node: Row, prefix: str = "") -> Row:
    found: Row = {}
    for key, value in node.items():
        found |= leaves(value, f"{prefix}{key}.") if isinstance(value, dict) else {
            prefix + key: value.rpartition(".")[2] if key == "_target_" else value
        }  # fmt: skip
    return found


@pytest.mark.parametrize("name", FILES)
def test_a_slot_file_has_these_numbers(name: str) -> None:
    """What is not set there is taken from the place of the same name in conf/train.yaml."""
    kind, numbers = FILES[name]
    found = leaves(plain(CONF / "model" / f"{name}.yaml"))
    found.pop("_partial_", None)
    assert found.pop("_target_") == kind
    linked = {key: text for key, text in found.items() if str(text).startswith("${")}
    assert {key: value for key, value in found.items() if key not in linked} == numbers
    for key, text in linked.items():
        place = RENAMED.get((name, key), key.rpartition(".")[2])
        assert text == f"${{model.{place}}}"


def test_every_slot_file_is_in_the_table() -> None:
    assert sorted(FILES) == sorted(f"{s}/{n}" for s in SLOTS for n in options(f"model/{s}"))
