"""The design check: what the paper says of the presets, and designs that break a principle."""

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest

from coefdyn.cli.check import run as main
from coefdyn.cli.train import run as train
from coefdyn.config.compose import compose
from coefdyn.config.plugins import CONF
from coefdyn.errors import ConfigError
from coefdyn.principles import check as checks
from coefdyn.principles.check import Line, Report, check
from coefdyn.principles.measure import Trend, kernel_zeros, mixer_of, score_variance

PRINCIPLES = ("P1", "P2", "P2.1", "P2.2", "P3", "P4", "P5", "P6")
# p: pass, w: warn, b: break; in the order of PRINCIPLES
PRESETS = {
    "softmax_attention": "wppppppp",
    "linear_attention": "ppwwpwpp",
    "normalized_attention": "pbpwpwpp",
    "gla": "pwpwpppp",
    "mamba2": "pwpwpwpp",
    "deltanet": "pwpwpppp",
    "gated_deltanet": "pwpwpppp",
    "mlstm": "pwpwpwpp",
}


def line(report: Report, principle: str) -> Line:
    (found,) = (x for x in report.lines if x.principle.split()[0] == principle)
    return found


@pytest.mark.parametrize("preset", PRESETS)
def test_presets_are_judged_as_the_paper_discusses_them(preset: str) -> None:
    report = check(compose([f"model={preset}"]))
    assert "".join(line(report, name).verdict[0] for name in PRINCIPLES) == PRESETS[preset]


def test_what_the_paper_says_of_single_presets() -> None:
    softmax, linear, mamba, delta, mlstm = (
        check(compose([f"model={name}"]))
        for name in ("softmax_attention", "linear_attention", "mamba2", "deltanet", "mlstm")
    )
    assert "no finite recurrent form" in line(softmax, "P1").reason
    assert "position=learned gives it" in line(softmax, "P3").reason
    assert line(softmax, "P3").number == "equal tokens differ by 0"
    assert "selectivity is fragile" in line(linear, "P2.1").reason
    assert line(linear, "P2.2").number == "of independent keys at most 7"
    assert "by its level, up to n/H =" in line(mamba, "P5").reason
    assert "unit vectors" in line(delta, "P4").reason
    assert "|lambda| from" in delta.facts["eigenvalues of A_t"]
    assert "to 1," in delta.facts["eigenvalues of A_t"]
    assert line(mlstm, "P6").reason == "A_t may exceed 1, and eta follows the coefficients"
    assert [r.facts["output class"] for r in (softmax, mamba)] == ["convex", "linear"]
    assert softmax.facts["the norm hides"] == "nothing"
    assert "a constant factor in b_j" in mamba.facts["the norm hides"]


def test_an_unscaled_key_breaks_principle_5() -> None:
    one = compose(["model/scaling=one", "model.n_state=1024", "model.n_heads=1"])
    found = line(check(one), "P5")
    assert found.verdict == "break"
    assert "inverse_sqrt" in found.change
    assert score_variance(one).exponent == pytest.approx(1, abs=0.1)
    assert score_variance(compose([])).exponent == pytest.approx(0, abs=0.1)
    assert score_variance(one).at(1024) == pytest.approx(1024, rel=0.1)


@pytest.mark.parametrize(
    ("normalization", "readout", "verdict"),
    [
        ("one", "exp", "break"),
        ("row_sum", "exp", "pass"),
        ("one", "relu", "break"),
        ("power", "relu", "pass"),
        ("power", "exp", "break"),
        ("one", "softplus", "break"),
    ],
)
def test_growth_needs_a_normalization_that_follows(
    normalization: str, readout: str, verdict: str
) -> None:
    grows = ["model/evolution=constant", "model.factor=1.05", "model.base=1.05"]
    chosen = [f"model/normalization={normalization}", f"model/readout={readout}"]
    assert line(check(compose([*grows, *chosen])), "P6").verdict == verdict


def test_a_growth_that_is_only_possible_is_a_warning() -> None:
    found = line(check(compose(["model=mlstm", "model/normalization=one"])), "P6")
    assert (found.verdict, "once it is trained" in found.reason) == ("warn", True)
    vanishing = line(check(compose(["model/normalization=power", "model.base=1.05"])), "P6")
    assert (vanishing.verdict, "vanish" in vanishing.reason) == ("warn", True)


def test_position_comes_from_somewhere() -> None:
    none = line(check(compose(["model/position=none"])), "P3")
    conv = line(check(compose(["model/position=none", "model/preprocess=short_conv"])), "P3")
    decay = line(check(compose(["model/position=none", "model/evolution=constant"])), "P3")
    assert [x.verdict for x in (none, conv, decay)] == ["break", "warn", "pass"]
    assert "depend on its neighbours" in conv.reason


@pytest.mark.parametrize("factor", [1.4, 5.0])
def test_growth_that_overflows_at_every_length_is_growth(factor: float) -> None:
    overrides = ["model/evolution=constant", f"model.factor={factor}", "model/normalization=one"]
    assert line(check(compose(overrides)), "P6").verdict == "break"


@pytest.mark.parametrize(
    ("readout", "number"),
    [("tanh", "of independent keys at most 7"), ("silu", "no limit"), ("relu", "no limit")],
)
def test_zeros_are_limited_where_only_a_zero_score_gives_one(readout: str, number: str) -> None:
    assert line(check(compose([f"model/readout={readout}"])), "P2.2").number == number


def test_a_fixed_householder_still_turns_keys_by_the_input() -> None:
    config = compose(["model=gla", "model/evolution=householder_key_fixed"])
    assert line(check(config), "P2").verdict == "warn"


@pytest.mark.slow
def test_every_choice_can_be_checked() -> None:
    from coefdyn.config.plugins import options

    for slot in ("evolution", "readout", "normalization"):
        for name in options(f"model/{slot}"):
            assert len(check(compose([f"model/{slot}={name}"])).lines) == len(PRINCIPLES)


def test_the_command_prints_and_draws(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "design.png"
    assert main(["model=gla", "format=json", f"out='{out}'"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert [x["principle"].split()[0] for x in said["principles"]] == list(PRINCIPLES)
    assert out.stat().st_size > 20000
    assert main(["model=gla", f"out='{out}'", "tokens=[1,2,3,1]"]) == 0
    assert main(["models=[softmax_attention,mamba2]"]) == 0
    text = capsys.readouterr().out
    assert "softmax attention" in text
    assert "mamba2" in text


def test_strict_fails_on_a_break_only(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["model/position=none"]) == 0
    assert main(["model/position=none", "strict=true"]) == 1
    assert main(["model=mamba2", "strict=true"]) == 0
    assert "invisible" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["format=xml"], "format=xml is not known; choose from table, json"),
        (["strict=maybe"], "strict=maybe must be true or false"),
        (["models=gla"], "models=gla must be a list of words, or null"),
        (["models=[gla,transformer]"], "models=transformer is not known; choose from .*deltanet"),
        (["models=[gla]", "out=x.png"], "out draws one design"),
        (["out=design.txt"], "out=design.txt cannot be written"),
        (["out=x.png", "tokens=[99]"], "must be a list of whole numbers from 0 to 31"),
        (["model/scaling=step_size"], "choose model/evolution from"),
        (["model=transformer"], "transformer"),
    ],
)
def test_bad_arguments_get_one_sentence(arguments: list[str], words: str) -> None:
    with pytest.raises(ConfigError, match=words) as error:
        main(arguments)
    assert "\n" not in str(error.value)


def test_training_warns_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = ["scale=smoke", f"paths.results={tmp_path}", "model/position=none"]
    assert train(run) == 0
    warned = [x for x in capsys.readouterr().err.splitlines() if x.startswith("warning:")]
    assert len(warned) == 1
    assert "breaks P3 position: A_t = I and no positions" in warned[0]
    assert train([*run, "check=false"]) == 0
    assert train([*run[:2]]) == 0
    assert "warning:" not in capsys.readouterr().err
    assert len(list((tmp_path / "runs").iterdir())) == 2  # check is no part of a run's name


def test_the_check_does_not_import_lightning() -> None:
    code = (
        "import sys; from coefdyn.cli.check import run as main; main(['model=gla']); "
        "assert 'lightning' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=CONF.parent, capture_output=True)


@pytest.mark.parametrize("principle", ["none", *"123456"])
def test_the_designs_of_all_principles_lm_break_what_they_say(principle: str) -> None:
    name = "all_principles" if principle == "none" else f"all_but_p{principle}"
    report = check(compose(["experiment=all_principles_lm", "scale=lite", f"model={name}"]))
    broken = [x.principle.split()[0] for x in report.broken]
    if principle in "2356":
        assert broken == [f"P{principle}"]
    else:  # P1 and P4 are limits
        assert broken == []
    verdicts = {n: line(report, n).verdict for n in ("P1", "P4")}
    assert (verdicts["P1"] == "warn") == (principle == "1")
    if principle in "14":
        assert verdicts[f"P{principle}"] == "warn"
    if principle == "none":
        assert verdicts == {"P1": "pass", "P4": "pass"}


def test_the_zero_set_of_a_kernel_is_told_as_it_is() -> None:
    """relu vanishes for half of all scores, and the kernel for (3/4)^n of pairs: Corollary 2.1's
    measure zero is true of positive kernels only."""
    given = ["model=linear_attention", "scale=lite"]
    relu = line(check(compose([*given, "model/readout=kernel_relu"])), "P2.1")
    assert relu.number == "zero set: 0.1 of random pairs (measured 0.1)"
    assert "against Corollary 2.1" in relu.reason
    for name in ("kernel_exp", "kernel_softplus", "kernel_elu_plus_one"):
        positive = line(check(compose([*given, f"model/readout={name}"])), "P2.1")
        assert positive.number == "zero set: empty"
    mixer = mixer_of(compose([*given, "model/readout=kernel_relu"]), 8)
    zeros = kernel_zeros(mixer)
    assert zeros.exact == pytest.approx(0.75**8, rel=1e-9)
    assert zeros.measured == pytest.approx(zeros.exact, abs=4 * (0.1 * 0.9 / 2**16) ** 0.5)


def test_not_implemented_is_not_impossible() -> None:
    """A square with a Householder has a state of n^2 rows; exp has none."""
    square = [
        "model/readout=polynomial", "model.readout.coefficients=[0.0,0.0,1.0]",
        "model/evolution=householder_key_learned",
    ]  # fmt: skip
    found = line(check(compose(["model=deltanet", *square])), "P1")
    assert found.number == "state: not implemented"
    assert "one exists" in found.reason
    assert line(check(compose(["model=softmax_attention"])), "P1").number == "state: none"


def test_what_is_no_number_never_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    nan = Trend((16, 64), (math.nan, math.nan))
    monkeypatch.setattr(checks, "score_variance", lambda _: nan)
    monkeypatch.setattr(checks, "coefficient_growth", lambda *_: nan)
    report = check(compose(["model=mamba2"]))
    assert (line(report, "P5").verdict, line(report, "P6").verdict) == ("break", "break")
