"""Configuration: what is built from it, and bad input answered in one sentence with the remedy."""

from collections.abc import Sequence

import pytest
import torch

from coefdyn.config import compose as training_config
from coefdyn.config.build import build_block, build_mixer, build_model
from coefdyn.config.compose import Config
from coefdyn.config.plugins import CONF
from coefdyn.errors import ConfigError
from coefdyn.mixer.compiled.kernels import without_kernels


def compose(overrides: Sequence[str] = (), name: str = "train") -> Config:
    """At paper scale: d_model 128, 16 heads."""
    scale = ["scale=paper"] if name == "train" else []
    return training_config.compose([*scale, *overrides], name)


BAD = [
    (["model=lstm"], ["model/lstm", "softmax_attention", "mlstm"]),
    (["model/readout=softmax"], ["model/readout/softmax", "exp", "kernel_relu"]),
    (["model/evolution=rotation"], ["model/evolution/rotation", "householder_key_learned"]),
    (["model/scaling=step_size"], ["step size", "scalar_mamba2", "gated_householder"]),
    (
        ["model=gla", "model/scaling=strength_inverse_sqrt"],
        ["model/evolution=diagonal_gla has none", "householder_key_fixed"],
    ),
    (["model.n_heads=7"], ["n_state=128 is not divisible by n_heads=7", "16"]),
    (["model.d_value=60"], ["d_value=60 is not divisible by n_heads=16"]),
    (["model.n_heads=0"], ["model.n_heads=0 must be a whole number"]),
    (["model.n_layers=two"], ["model.n_layers=two must be a whole number"]),
    (["model.d_mlp=-1"], ["model.d_mlp=-1", "null"]),
    (["model.width=3"], ["model.width"]),
    (
        ["model.backend=flash"],
        ["model.backend=flash", "auto, quadratic, linear, compiled, definition"],
    ),
    (["model.backend=linear"], ["not a polynomial", "use auto or quadratic"]),
    (
        ["model=deltanet", "model/readout=taylor_exp", "model.backend=linear"],
        ["degree above 1", "use auto or quadratic"],
    ),
    (
        ["model=gla", "model/readout=kernel_exp", "model.backend=linear"],
        ["does not commute", "use auto or quadratic"],
    ),
    (["model.block.post_norm=layer"], ["post_norm=layer", "all, head, none"]),
    (["model.init=xavier"], ["model.init=xavier", "torch, normal"]),
    (["model/evolution=constant", "model.evolution.c=0.0"], ["c > 0"]),
    (["model.unit_qk=no"], ["model.unit_qk=no must be true or false"]),
    (["model.block.gated=off"], ["gated=off must be true or false"]),
    (["model=gla", "model.evolution.temperature=-16.0"], ["temperature > 0"]),
    (["model=gla", "model.evolution.rank=0"], ["rank >= 1"]),
    (["model=mamba2", "model.evolution.rate_range=[-1.0,1.0]"], ["rate_range=[-1.0, 1.0]"]),
    (["model=mamba2", "model.evolution.step_range=[0.0,0.1]"], ["step_range", "low <= high"]),
    (["model=mlstm", "model.evolution.gate_range=[3.0]"], ["gate_range=[3.0]", "two numbers"]),
    (["model.block._target_=torch.nn.Identity"], ["Identity"]),
    (["model.readout._target_=coefdyn.mixer.slots.scaling.One"], ["is not a Readout"]),
    (["model=mamba2", "+model.preprocess.widht=3"], ["widht"]),
    (["model=mamba2", "model.preprocess.width=0"], ["width of at least 1"]),
    (["model=null"], ["must be a string"]),
    (["~model.evolution"], ["model lacks: evolution"]),
    (["seed=abc"], ["seed=abc must be a whole number"]),
    (
        ["model=deltanet", "model/scaling=step_size"],
        ["model/evolution=householder_key_learned has none", "scalar_mamba2"],
    ),
    (["model=deltanet", "model.evolution.strength=3.0"], ["(0, 2]"]),
    (
        ["model/readout=polynomial", "model.readout.coefficients=[1.0]"],
        ["of which the last is not 0"],
    ),
    (["model/readout=taylor_exp", "model.readout.degree=0"], ["degree of at least 1"]),
    (["model/normalization=row_sum", "model.normalization.eps=0.0"], ["eps > 0"]),
    (["model/normalization=power", "model.normalization.c=-1.0"], ["c > 0"]),
    (["+model.readout.sharpness=2"], ["unexpected keyword argument 'sharpness'"]),
    (["model.evolution._target_=os.system"], ["refused", "coefdyn, torch, lightning"]),
    (["model.evolution._target_=coefdyn.config.plugins.Path"], ["refused"]),
    (["model.evolution._target_=coefdyn.config.build.compose"], ["refused"]),
    (["model.evolution._target_=torchevil.System"], ["refused"]),
    (["model.evolution._target_=coefdyn.mixer.slots.evolution.Nope"], ["does not exist"]),
    (
        ["model/position=sinusoidal", "model.d_model=7", "model.n_state=16"],
        ["even model.d_model"],
    ),
]


@pytest.mark.parametrize(("overrides", "parts"), BAD, ids=lambda value: " ".join(value))
def test_bad_configuration_gets_one_sentence(overrides: list[str], parts: list[str]) -> None:
    with pytest.raises(ConfigError) as error:
        build_model(compose(overrides))
    message = str(error.value)
    assert "\n" not in message
    for part in parts:
        assert part in message


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (torch.zeros(2, 0, 128), "at least one sequence and one step"),
        (torch.zeros(2, 128), "expected (batch, time, 128)"),
        (torch.zeros(2, 4, 64), "expected (batch, time, 128)"),
        (torch.zeros(2, 4, 128, dtype=torch.int64), "floating-point"),
    ],
)
def test_bad_tensors_get_one_sentence(x: torch.Tensor, message: str) -> None:
    config = compose()
    mixer, block = build_mixer(config), build_block(config)
    for call in (mixer, block, mixer.coefficients):
        with pytest.raises((ValueError, TypeError)) as error:
            call(x)
        assert message in str(error.value)
        assert "\n" not in str(error.value)


def test_wrong_precision_gets_one_sentence() -> None:
    mixer = build_mixer(compose())
    with pytest.raises(TypeError, match=r"needs weights of torch\.float64"):
        mixer(torch.zeros(2, 4, 128, dtype=torch.float64))
    with pytest.raises(TypeError, match="autocast is the way to bfloat16"):
        mixer.bfloat16()(torch.zeros(2, 4, 128, dtype=torch.bfloat16))


def test_a_step_takes_one_token_of_the_same_sequences() -> None:
    mixer = build_mixer(compose(["model=gla"]))
    with pytest.raises(ValueError, match="one token per sequence, not 2"):
        mixer.step(torch.zeros(1, 2, 128), None)
    _, state = mixer.step(torch.zeros(1, 1, 128), None)
    with pytest.raises(ValueError, match="the state is of 1 sequences, but the input is of 3"):
        mixer.step(torch.zeros(3, 1, 128), state)


def test_a_backend_set_later_is_checked_too() -> None:
    mixer = build_mixer(compose())
    for backend in ("linear", "flash"):
        with pytest.raises(ValueError, match=r"model\.backend="):
            mixer.backend = backend
    assert mixer.backend == "auto"


def test_the_seed_decides_the_weights() -> None:
    first, again, other = (build_model(compose([f"seed={seed}"])).head.weight for seed in (3, 3, 4))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


@pytest.mark.parametrize("evolution", ["identity", "scalar_mamba2", "householder_key_fixed"])
def test_presets_take_another_evolution(evolution: str) -> None:
    """The DeltaNet presets' largest strength applies to learned strengths alone."""
    config = compose(["model=deltanet", f"model/evolution={evolution}", "model/scaling=one"])
    mixer = build_mixer(config)
    if evolution == "householder_key_fixed":
        assert mixer.design.evolution.max_strength == 2.0


def test_a_design_without_recurrent_form_says_so() -> None:
    with pytest.raises(ValueError, match="no recurrent form: its readout is not a polynomial"):
        build_mixer(compose()).step(torch.zeros(1, 1, 128), None)


def test_every_conf_file_says_what_it_is() -> None:
    for path in CONF.rglob("*.yaml"):
        assert path.read_text().startswith("# "), f"{path} has no header"


def test_choosing_a_slot_changes_only_that_slot() -> None:
    base, changed = compose(["model=gla"]), compose(["model=gla", "model/readout=relu"])
    differing = {key for key in base.choices if base.choices[key] != changed.choices[key]}
    assert differing == {"model/readout"}


def test_every_layer_has_a_mixer_of_its_own() -> None:
    blocks = build_model(compose(["model.n_layers=3"])).blocks
    assert len({id(block.mixer.design.evolution) for block in blocks}) == 3


def test_auto_picks_by_length_and_reports_it() -> None:
    def used(*overrides: str, length: int) -> str | None:
        mixer = build_mixer(compose(overrides))
        mixer(torch.randn(1, length, 128))
        return mixer.form_used

    wide = "model.n_heads=4"
    assert used("model=linear_attention", length=600) == "compiled"
    assert used("model=linear_attention", wide, length=127) == "compiled"
    assert used("model=linear_attention", wide, length=128) == "linear"
    assert used("model=gla", wide, length=128) == "compiled"
    assert used("model=deltanet", wide, length=128) == "compiled"
    assert used("model=relu_attention", wide, length=128) == "compiled"
    assert used("model.n_heads=16", length=600) == "compiled"
    assert used("model.n_heads=8", length=600) == "sdpa"
    with without_kernels():
        assert used("model=linear_attention", length=16) == "quadratic"
        assert used("model=linear_attention", length=600) == "linear"
        assert used("model.n_heads=16", length=600) == "quadratic"
