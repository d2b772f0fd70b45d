"""What each claim asks for, value by value, as it was stated before any run."""

from pathlib import Path

import pandas as pd
import pytest

from coefdyn.paper import experiments
from tests.paper.worlds import fill

HALF_LINES = ["{}: half-lines - identity >= {}", "{}: relu - half-lines >= {}"]
KERNELS = [
    f"near zero: kernel {name} - identity >= 0.005" for name in ("elu plus one", "softplus", "exp")
]
STRUCTURES = [
    "diagonal - scalar >= -0.02", "Householder - diagonal >= -0.02", "Householder - scalar >= 0.05",
]  # fmt: skip
SPREAD = ["deviation without 1/sqrt(n) / with >= 1.5"]
MOST = [f"deviation of exp / {name} >= 1.2" for name in ("relu attention", "mamba2", "householder")]
SOLVED = ["exp >= 0.95", "softplus >= 0.95", "relu >= 0.95"]
AT_CHANCE = "(5 of 5 seeds diverged or at chance) <= 0.15"  # chance is 0.1 in these tables
POWER = ["softplus, eta one in [0.15, 0.95]", "relu, eta one in [0.15, 0.95]",
         "softplus, eta power >= 0.95", "relu, eta power >= 0.95"]  # fmt: skip
BARE = ["exp <= 0.15", "softplus <= 0.15", "relu in [0.15, 0.95]"]
FAMILIES = ("softmax attention", "relu attention", "mamba2", "householder")
LOG = "log perplexity: "
SIGNS = ("signed mamba2", "signed gla", "householder key learned")
ABLE = {
    "parity": SIGNS,
    "sum modulo 60": ("householder product", "mamba3"),
    "permutations of 3": ("householder product",),
    "permutations of 5": ("householder product four",),
}
UNABLE = {
    "parity": ("scalar mamba2", "diagonal gla", "householder key positive"),
    "sum modulo 60": SIGNS,
    "permutations of 3": SIGNS,
    "permutations of 5": ("householder key learned", "householder product"),
}
ONE_LAYER = [f"{words}: beyond 80 % of the gap >= 0" for words in ("SMMM", "MSMM", "MMSM", "MMMS")]
EFFECTS = {
    "P1 slopes": ["slope, linear in [0.85, 1.15]", "slope, quadratic in [1.8, 2.2]"],
    **{
        f"P2 {task}, {words}": [text.format(column, least) for text in HALF_LINES]
        for task in ("fuzzy recall", "selective copying", "memorization")
        for words, column, least in (
            ("set to near zero", "near zero", 0.05), ("near zero to accuracy", "accuracy", 0.02)
        )
        if (task, column) != ("memorization", "accuracy")
    },
    **{f"P2 {task}, ratio to accuracy": ["agreement >= 0.5"]
       for task in ("fuzzy recall", "selective copying", "memorization")},
    **{f"P2.1 {task}, near zero": ["near zero: readout - kernel >= 0.05"]
       for task in ("fuzzy recall", "selective copying")},
    **{f"P2.1 {task}, accuracy": ["accuracy: readout - kernel >= 0.02"]
       for task in ("fuzzy recall", "selective copying")},
    **{f"P2.1 {task}, identity": KERNELS for task in ("fuzzy recall", "selective copying")},
    "P2.2 limit": [
        f"kernel {name}, {task}, length {length}: zeros <= 7"
        for task, length in (("fuzzy recall", 18), ("selective copying", 16))
        for name in ("softplus", "exp")
    ],
    "P2.2 length": [
        f"kernel {name}, selective copying: zeros at length 32 - 16 >= 0.5"
        for name in ("exp", "softplus")
    ],
    "P3 position solves": [
        f"{phi}, A {A}, position {position} >= 0.95"
        for A, position in (("identity", "learned"), ("constant", "learned"), ("constant", "none"))
        for phi in ("exp", "softplus", "relu")
    ],
    "Position schemes solve": [
        f"{name} >= 0.95" for name in ("cI", "ALiBi", "FoX", "Wall", "PaTH-FoX", "rotary", "PaTH")
    ],
    "Position lengths, kept": [
        f"{name}: accuracy lost <= 0.05" for name in ("cI", "ALiBi", "FoX", "Wall", "PaTH-FoX")
    ],
    "Position lengths, lost": [
        f"{name}: accuracy lost >= 0.1" for name in ("learned", "sinusoidal", "rotary")
    ],
    "Position lengths, copying": ["A_t - embeddings >= 0.05"],
    **{
        f"State tracking, {task}, learned": [
            f"solved by {name} (12 of 12 seeds) >= 0.5" for name in names
        ]
        for task, names in ABLE.items()
    },
    **{
        f"State tracking, {task}, out of reach": [f"{name} <= 0.9" for name in names]
        for task, names in UNABLE.items()
    },
    "State tracking, four times the length": [
        f"{words} (12 of 12 seeds) >= 0.5"
        for words in (
            "permutations of 3 by householder product",
            "permutations of 5 by householder product four",
            "parity by householder key learned",
        )
    ],
    "MQAR, attention": [f"width {n} >= 0.95" for n in (8, 16, 32)],
    "MQAR, state": [
        f"{name}: widest - narrowest >= 0.1"
        for name in ("gla", "mamba2", "deltanet", "gated_deltanet")
    ],
    "MQAR, delta rule": ["delta rule - decay, width 16 >= 0.05"],
    "Hybrids, one layer": ONE_LAYER,
    "Hybrids, some place": ONE_LAYER,
    "P3 without position, against chance": BARE,
    "P3 without position, against counting tokens": BARE,
    "P4 structure, fuzzy recall": STRUCTURES,
    "P4 structure, selective copying": STRUCTURES,
    "P4 parameterization": [
        f"{name} on {task} >= 0.05"
        for task in ("fuzzy recall", "selective copying")
        for name in ("scalar", "diagonal", "householder key", "householder free")
    ],
    **{f"P5 spread, {family}": SPREAD for family in FAMILIES},
    **{f"P5 spread, {family} (no post-norm)": SPREAD for family in ("mamba2", "householder")},
    "P5 spread, relu attention (no post-norm)": [],  # known without a run
    "P5 exp spreads most": MOST,
    "P5 mechanism": ["slope, b one in [0.9, 1.1]", "slope, b inverse_sqrt in [-0.1, 0.1]"],
    **{f"P6 sum{words}": SOLVED for words in ("", " (no post-norm)")},
    **{f"P6 exp fails{words}": [f"exp, eta = 1 {AT_CHANCE}", f"exp, eta = c^i {AT_CHANCE}"]
       for words in ("", " (no post-norm)")},
    **{f"P6 power{words}": POWER for words in ("", " (no post-norm)")},
    "P5 language, softmax attention":
        [LOG + "softmax attention unscaled - softmax attention in [0.005, 0.06]"],
    "P5 language, Mamba-2": [LOG + "mamba2 unscaled - mamba2 inverse sqrt in [0.005, 0.06]"],
    "P5 language, Delta": [LOG + "mamba2 inverse sqrt - mamba2 in [-0.01, 0.01]"],
    "All principles, language":
        [LOG + f"all but p{number} - all principles >= 0.02" for number in range(2, 7)],
}  # fmt: skip


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> dict[str, pd.DataFrame]:
    folder, found = fill(Path(tmp_path_factory.mktemp("right"))), {}
    for experiment in experiments().values():
        if folder.has(experiment.stem):
            found |= folder.tables_of(experiment)
    return found


def test_a_claim_asks_for_these_effects_and_no_other(tables: dict[str, pd.DataFrame]) -> None:
    asked = {
        claim.name: [f"{effect.name} {effect.region}" for effect in claim.judge(tables).effects]
        for experiment in experiments().values()
        for claim in experiment.claims
    }
    assert asked == EFFECTS


def test_levels_are_those_of_the_table(tables: dict[str, pd.DataFrame]) -> None:
    """What is no better than counting is told by another number than chance."""
    stem = "principle3_position"
    changed = tables | {f"{stem}_runs": tables[f"{stem}_runs"].assign(order_free=0.4, chance=0.2)}
    claims = {claim.name: claim for claim in experiments()[stem].claims}
    for words, border in (("chance", 0.25), ("counting tokens", 0.45)):
        effects = claims[f"P3 without position, against {words}"].effects(changed)
        assert [effect.region.high for effect in effects] == pytest.approx([border, border, 0.95])
        assert effects[-1].region.low == pytest.approx(border)
