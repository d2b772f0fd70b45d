"""Plugins: found and trusted when they are named, and never otherwise."""

import shutil
import sys
from pathlib import Path

import pytest
import torch

import coefdyn
from coefdyn.cli import main
from coefdyn.config.compose import compose
from coefdyn.config.plugins import conf_directories, options
from coefdyn.errors import ConfigError
from coefdyn.testing import check_choice

PLUGIN = Path(__file__).parents[1] / "assets" / "plugin"
NAMED = "plugins=[my_package]"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory that holds the plugin; nothing of it is imported yet."""
    shutil.copytree(PLUGIN / "my_package", tmp_path / "my_package")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    for name in [name for name in sys.modules if name.partition(".")[0] == "my_package"]:
        monkeypatch.delitem(sys.modules, name)
    conf_directories.cache_clear()
    return tmp_path


def test_its_choices_are_found_where_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    config = compose([NAMED, "model/readout=square", "task=which_first"])
    assert config.settings.plugins == ["my_package"]
    assert "square" in options("model/readout", ("my_package",))
    assert "square" not in options("model/readout")
    with pytest.raises(ConfigError, match="model/readout/square"):
        compose(["model/readout=square"])
    monkeypatch.setenv("COEFDYN_PLUGINS", "my_package")
    assert compose(["model/readout=square"]).run_id == compose(
        [NAMED, "model/readout=square"]
    ).run_id  # fmt: skip


def test_a_class_named_like_one_of_ours_has_another_id() -> None:
    ours = compose(["model/readout=relu"])
    theirs = compose([NAMED, "model/readout=relu", "model.readout._target_=my_package.slots.Relu"])
    assert ours.run_id != theirs.run_id
    assert ours.run_id == compose([NAMED, "model/readout=relu"]).run_id


def test_what_is_not_named_is_refused_and_not_imported(
    capsys: pytest.CaptureFixture[str],
) -> None:
    target = "model.readout._target_=my_package.slots.Square"
    assert main(["train", "scale=smoke", target, "model/readout=relu"]) == 1
    message = capsys.readouterr().err
    assert "is refused" in message
    assert "add plugins=[my_package]" in message
    assert "my_package" not in sys.modules
    for bad, words in (
        ("plugins=[nothing_here]", "plugins names nothing_here, which is neither"),
        ("plugins=my_package", r"must be a list, such as plugins=\[my_package\]"),
        ("plugins=[os.path]", "plugins names os.path, which is neither"),
    ):
        with pytest.raises(ConfigError, match=words):
            compose([bad])


def test_a_run_is_loaded_without_the_plugin_that_its_record_names() -> None:
    run = coefdyn.train(
        "scale=smoke", "model/readout=square", "check=false", plugins=["my_package"]
    )
    for name in [name for name in sys.modules if name.partition(".")[0] == "my_package"]:
        del sys.modules[name]
    loaded = coefdyn.load_run(run.folder)
    assert loaded.record == run.record
    assert len(coefdyn.load_runs("results")) == 1
    with pytest.raises(ConfigError, match=r"is refused.*plugins=\[my_package\]"):
        loaded.model()
    assert "my_package" not in sys.modules
    coefdyn.load_run(run.folder, plugins=["my_package"]).model()


def test_a_foreign_mixer_is_trained_with_all_but_statistics() -> None:
    run = coefdyn.train("model=causal_mean", "scale=smoke", plugins=["my_package"])
    assert run.record.status == "finished"
    assert run.record.coefficients is None
    assert run.record.backend == [None, None]
    assert run.coefficients([[1, 2]]) == []
    other = compose([NAMED, "model=causal_mean", "scale=smoke", "model/readout=relu"])
    assert other.run_id == run.run_id, "slots that it does not use are no part of it"
    with pytest.raises(ConfigError, match=r"no point .* of the design space"):
        coefdyn.check_design("model=causal_mean", plugins=["my_package"])


@pytest.mark.long
def test_a_grid_with_a_foreign_mixer_becomes_a_table(here: Path) -> None:
    grid = [NAMED, "model=causal_mean,gla", "trainer.clip=null,1.0", "scale=smoke"]
    assert main(["sweep", *grid, "action=run"]) == 0
    assert main(["figure", *grid, "name=mine"]) == 0
    assert main(["report", NAMED]) == 0
    table = (here / "results" / "tables" / "smoke" / "mine.csv").read_text()
    assert table.count("foreign") == 2 * 5
    assert main(["figure", *grid, "name=../mine"]) == 1


@pytest.mark.slow
def test_every_command_takes_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    """By name, or from the environment."""
    run = coefdyn.train("scale=smoke", "model/readout=square", plugins=["my_package"])
    commands = [["show", run.run_id], ["check", "model/readout=square"], ["doctor"],
                ["sweep", "model/readout=square", "scale=smoke"]]  # fmt: skip
    for command in commands:
        assert main([*command, NAMED]) == 0
    monkeypatch.setenv("COEFDYN_PLUGINS", "my_package")
    for command in commands:
        assert main(command) == 0


@pytest.mark.parametrize(
    ("text", "target", "words"),
    [
        ("raise RuntimeError('boom')", "Broken", "cannot be imported: RuntimeError: boom"),
        ("import no_such_thing", "Broken", "cannot be imported: ModuleNotFoundError"),
        ("def make(): ...", "make", "is refused: it is no class"),
        ("", "Nothing", "has no Nothing"),
        ("from subprocess import Popen", "Popen", "it is defined in subprocess"),
    ],
)
def test_a_broken_plugin_gets_one_sentence(
    here: Path, text: str, target: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "my_package" / f"broken_{target}_{len(text)}.py").write_text(text)
    chosen = f"model.readout._target_=my_package.broken_{target}_{len(text)}.{target}"
    assert main(["train", NAMED, "scale=smoke", "model/readout=relu", chosen]) == 1
    message = capsys.readouterr().err
    assert words in message
    assert message.count("\n") == 1


def test_a_directory_of_yaml_is_a_plugin_without_classes(here: Path) -> None:
    place = here / "mine" / "conf" / "model"
    place.mkdir(parents=True)
    (place / "gla_relu.yaml").write_text("defaults:\n  - gla\n  - override readout: relu\n")
    config = compose([f"plugins=[{here / 'mine'}]", "model=gla_relu"])
    assert config.choices["model/readout"] == "relu"


@pytest.mark.long
def test_an_experiment_of_a_plugin_becomes_a_table_a_picture_and_a_page(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    grid = [NAMED, "experiment=my_ablation", "scale=smoke"]
    assert main(["sweep", *grid, "action=run"]) == 0
    assert main(["figure", *grid]) == 0
    assert main(["report", NAMED]) == 0
    capsys.readouterr()
    table = (here / "results" / "tables" / "smoke" / "my_ablation.csv").read_text().splitlines()
    assert len(table) == 1 + 4
    header, first = (line.split(",") for line in table[:2])
    point = dict(zip(header, first, strict=True))
    assert point["trainer.clip"] == "0.5"
    assert (point["readout"], point["seeds"], point["runs"]) == ("square", "2", "2")
    assert (here / "results" / "figures" / "smoke" / "my_ablation.png").stat().st_size > 10_000
    assert "my_ablation" in (here / "results" / "report" / "index.html").read_text()


@pytest.mark.parametrize(
    ("group", "name"),
    [("readout", "square"), ("evolution", "half_life"), ("evolution", "turn"),
     ("task", "which_first")],
)  # fmt: skip
def test_the_contract_holds_for_good_ones(group: str, name: str) -> None:
    check_choice(group, name, plugins=["my_package"])


@pytest.mark.parametrize(
    ("group", "name", "words"),
    [
        ("readout", "signed_square", "SignedSquare.nonnegative must be False"),
        ("evolution", "undeclared", "Undeclared.has_decay must be True"),
    ],
)
def test_the_contract_fails_for_wrong_traits(group: str, name: str, words: str) -> None:
    with pytest.raises(AssertionError, match=words):
        check_choice(group, name, plugins=["my_package"])


WRONG = {
    "tanh": "the evolution Tanh returns a log_decay that is not finite: a decay must be above 0",
    "unknown": "the evolution Unknown returns a Turned, which the forms do not know",
    "undeclared": "the evolution Undeclared returns a log_decay, but its has_decay is False",
}


@pytest.mark.parametrize("name", WRONG)
def test_an_evolution_that_forms_would_take_for_another_is_refused_when_built(name: str) -> None:
    with pytest.raises(ConfigError) as refused:
        coefdyn.build_mixer("gla", d_model=8, n_heads=2, evolution=name, plugins=["my_package"])
    assert WRONG[name] in str(refused.value)
    if name != "undeclared":
        assert "set dense = True and return Transition(matrix=...)" in str(refused.value)


def test_any_other_evolution_trains_as_a_matrix(tmp_path: Path) -> None:
    """By the loops of the definition: its coefficients are those of the product of rotations."""
    given = ["model=linear_attention", "model/evolution=turn", "scale=smoke", "task=noisy_recall"]
    run = coefdyn.train(*given, results=tmp_path, plugins=["my_package"])
    assert run.record.backend == ["definition", "definition"]
    mixer = coefdyn.build_mixer(
        "linear_attention", d_model=8, n_heads=2, evolution="turn", scaling="one",
        readout="identity", plugins=["my_package"],
    ).double()  # fmt: skip
    x = torch.randn(1, 5, 8, dtype=torch.float64)
    alpha, _ = mixer.coefficients(x)
    given_ = mixer.projected(x)
    A = mixer.design.evolution(x, given_.k).matrix
    assert A is not None
    product = A[0, 0, 4] @ A[0, 0, 3] @ A[0, 0, 2]
    expected = given_.q[0, 0, 4] @ product @ given_.k[0, 0, 1]
    torch.testing.assert_close(alpha[0, 0, 4, 1], expected)


def test_a_matrix_has_only_the_form_of_the_definition() -> None:
    sizes = {"d_model": 8, "n_heads": 2, "evolution": "turn", "plugins": ["my_package"]}
    with pytest.raises(ConfigError, match="its A_t is given as a matrix; use auto or definition"):
        coefdyn.build_mixer("linear_attention", backend="linear", **sizes)
    mixer = coefdyn.build_mixer("linear_attention", **sizes)
    with pytest.raises(ValueError, match="no recurrent form: its A_t is given as a matrix"):
        mixer.step(torch.randn(1, 1, 8), None)
