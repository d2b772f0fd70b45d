"""Slot files hold numbers of their own, such as the rank of GLA's gate: these are listed here."""

import pytest

from coefdyn.config.build import SLOTS
from coefdyn.config.plugins import CONF, options
from tests.config.composed import plain
from tests.config.paper import Row

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
    "evolution/householder_product_four": ("Householder", KEY | {"learned": True, "repeats": 4}),
    "evolution/householder_key_positive": ("Householder", KEY | {"learned": True, "strength": 1.0}),
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
