"""The Python interface: what `import coefdyn` offers."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import coefdyn
from coefdyn.config.build import build_task
from coefdyn.config.compose import compose
from coefdyn.errors import ConfigError
from coefdyn.mixer.slots.evolution import Constant
from coefdyn.mixer.slots.readout import Relu
from coefdyn.runs.run import run_one
from tests.runs.populations import records, small

ASSETS = Path(__file__).parent / "assets"


def test_importing_loads_neither_torch_nor_lightning() -> None:
    script = "import sys, coefdyn; print({'torch', 'lightning', 'hydra'} & set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "set()"


def test_no_exported_name_is_a_package() -> None:
    place = Path(coefdyn.__file__).parent
    for name in coefdyn.__all__:
        assert callable(getattr(coefdyn, name))
        assert not (place / name).exists()
        assert not (place / f"{name}.py").exists()
    assert set(coefdyn.__all__) <= set(dir(coefdyn))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = coefdyn.nothing


def test_a_mixer_takes_its_sizes_once() -> None:
    mixer = coefdyn.build_mixer("gla", d_model=12, n_heads=3, readout="relu", d_value=6)
    assert mixer(torch.randn(2, 5, 12)).shape == (2, 5, 6)
    assert (mixer.width, mixer.value_width) == (4, 2)
    assert isinstance(mixer.design.readout, Relu)


def test_a_slot_can_be_an_object() -> None:
    half = coefdyn.build_mixer("mamba2", d_model=8, n_heads=2, evolution=Constant(0.5),
                               scaling="one")  # fmt: skip
    alpha, _ = half.coefficients(torch.randn(1, 3, 8))
    undecayed = coefdyn.build_mixer("mamba2", d_model=8, n_heads=2, evolution="identity",
                                    scaling="one")  # fmt: skip
    undecayed.load_state_dict(half.state_dict())
    x = torch.randn(1, 3, 8)
    (alpha, _), (plain, _) = half.coefficients(x), undecayed.coefficients(x)
    torch.testing.assert_close(alpha[..., 2, 0], 0.25 * plain[..., 2, 0])


def test_a_model_maps_tokens_to_logits_and_its_layers_share_nothing() -> None:
    model = coefdyn.build_model(
        "mamba2", vocab_size=7, max_length=9, d_model=8, n_heads=2, n_layers=3, readout=Relu()
    )
    assert model(torch.zeros(2, 9, dtype=torch.int64)).shape == (2, 9, 7)
    assert len({id(block.mixer.design.readout) for block in model.blocks}) == 3
    assert model.blocks[0].mlp[1].inner.out_features == 2 * 16
    bare = coefdyn.build_model(vocab_size=7, max_length=9, d_model=8, n_heads=2, d_mlp=None)
    assert bare.blocks[0].mlp is None


class CausalSum(nn.Module):
    """A mixer that knows nothing of coefdyn."""

    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.project(x).cumsum(1)


def test_a_foreign_mixer_can_stand_in_a_block() -> None:
    torch.manual_seed(3)
    model = coefdyn.build_model(vocab_size=7, max_length=9, d_model=8, n_heads=2, mixer=CausalSum)
    mixers = [block.mixer for block in model.blocks]
    assert all(isinstance(mixer, CausalSum) for mixer in mixers)
    assert mixers[0] is not mixers[1]
    assert mixers[0].project.bias.abs().max() > 0, "its own initial values are kept"
    logits = model(torch.zeros(2, 9, dtype=torch.int64))
    assert logits.shape == (2, 9, 7)
    with pytest.raises(ValueError, match="CausalSum has no recurrent form"):
        model.step(torch.zeros(2, 1, dtype=torch.int64), None)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: nn.Linear(8, 7), r"makes \(1, 2, 7\) of \(1, 2, 8\)"),
        (lambda: nn.Linear(7, 8), "Linear fails: "),
        (lambda: 3, "makes a int, which is no torch.nn.Module"),
        (nn.Linear(8, 8), "mixer=Linear must be what makes a mixer for each layer"),
        (nn.Linear, "is called without arguments, and fails: .* mixer=lambda: MyMixer"),
    ],
)
def test_a_foreign_mixer_of_another_shape_is_refused(make: object, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        coefdyn.build_model(vocab_size=7, max_length=9, d_model=8, n_heads=2, mixer=make)
    with pytest.raises(ConfigError, match=r"model.d_value=4 must be model.d_model=8"):
        coefdyn.build_model(
            vocab_size=7, max_length=9, d_model=8, d_value=4, n_heads=2, mixer=CausalSum
        )


@pytest.mark.parametrize(
    ("choices", "words"),
    [
        ({"preset": "lstm"}, "model/lstm"),
        ({"readout": "softmax"}, "model/readout/softmax"),
        ({"readout": 3}, "readout=3 must be one of .*, or a coefdyn Readout"),
        ({"block": 3}, "block=3 must be one of type1, type2"),
        ({"n_heads": 5}, "not divisible by n_heads=5"),
        ({"dropout": 0.1}, "dropout"),
        ({"plugins": "my_package"}, "must be a list, such as"),
        ({"plugins": ["no_such_package"]}, "neither a package that can be imported nor a"),
    ],
)
def test_bad_arguments_get_one_sentence(choices: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=words) as error:
        coefdyn.build_mixer(**{"d_model": 12, "n_heads": 3, **choices})  # type: ignore[arg-type]
    assert "\n" not in str(error.value)


def test_training_finds_what_is_recorded_and_a_run_can_be_looked_into(tmp_path: Path) -> None:
    overrides = ("model=gla", "scale=smoke", "seed=3")
    run = coefdyn.train(*overrides, results=tmp_path)
    again = coefdyn.train(*overrides, results=tmp_path)
    assert again.record == run.record == coefdyn.load_run(run.folder).record
    assert list(run.history["epoch"]) == [1, 2]
    assert run.history["test/accuracy"].iloc[-1] == run.record.metrics["test/accuracy"]
    assert run.config.settings.model.d_model == 16
    assert run.config.run_id == run.run_id
    layers = run.coefficients([[1, 2, 3, 1]])
    assert [layer.alpha.shape for layer in layers] == [(1, 2, 4, 4)] * 2
    assert run.run_id in repr(run)


def test_a_loaded_model_gives_the_logits_of_the_runs_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In every bit, of a run alone and of members of a population."""
    from coefdyn.runs.population import training

    config = compose(["scale=smoke", "model=mamba2", f"paths.results={tmp_path}"])
    tokens = torch.from_numpy(build_task(config).generate("test", 0).inputs)
    ends: dict[str, torch.Tensor] = {}
    make = training.make_record

    def noted(job, *rest):  # type: ignore[no-untyped-def]
        with torch.no_grad():
            ends[job.directory.name] = job.setup.model.eval()(tokens)
        return make(job, *rest)

    monkeypatch.setattr(training, "make_record", noted)
    monkeypatch.setattr("coefdyn.runs.run.make_record", noted)
    run_one(config)
    records(training.train_population(small(tmp_path, "model=mamba2", "trainer.max_epochs=1")))
    assert len(ends) == 5
    for name, logits in ends.items():
        model = coefdyn.load_run(tmp_path / "runs" / name).model()
        with torch.no_grad():
            assert torch.equal(model(tokens), logits)


WRONG_KINDS = """
import coefdyn
from coefdyn.errors import ConfigError
for arguments, results in (([["scale=smoke"]], "x"), (["scale=smoke"], None), ([None], "x")):
    try:
        coefdyn.train(*arguments, results=results)
    except ConfigError as error:
        print(error)
"""


def test_what_is_no_text_and_no_folder_is_refused(tmp_path: Path) -> None:
    """In a process of its own: here, types are checked before our code is asked."""
    printed = subprocess.check_output(
        [sys.executable, "-c", WRONG_KINDS], text=True, cwd=tmp_path
    ).splitlines()
    words = ("must be text", "results=None must be a folder", "must be text")
    assert all(word in line for word, line in zip(words, printed, strict=True))
    assert not list(tmp_path.iterdir())


def test_weights_that_are_gone_are_named(tmp_path: Path) -> None:
    run = coefdyn.train("scale=smoke", "check=false", results=tmp_path)
    (run.folder / "last.ckpt").unlink()
    with pytest.raises(ConfigError, match="has no checkpoint, so its weights are lost"):
        run.model()
    (run.folder / "last.ckpt").write_bytes(
        next(ASSETS.glob("version_0.1/runs/*/last.ckpt")).read_bytes()
    )
    with pytest.raises(ConfigError, match="is not of this model"):
        run.model()


def test_runs_are_a_table_with_flat_columns(tmp_path: Path) -> None:
    for seed in (0, 1):
        coefdyn.train("scale=smoke", f"seed={seed}", "model/readout=relu", results=tmp_path)
    runs = coefdyn.load_runs(tmp_path)
    assert len(runs) == 2
    assert set(runs["readout"]) == {"relu"}
    assert sorted(runs["seed"]) == [0, 1]
    assert runs["optimizer.lr"].tolist() == [5e-3, 5e-3]
    assert runs["test/accuracy"].between(0, 1).all()
    assert runs["near_zero"].between(0, 1).all()
    assert not any(isinstance(value, (dict, list)) for value in runs.iloc[0])
    assert coefdyn.load_runs(tmp_path / "runs").empty
    with pytest.raises(ConfigError, match="there is no folder"):
        coefdyn.load_runs(tmp_path / "nowhere")


def test_runs_of_the_version_before_are_refused_or_left_out() -> None:
    old = ASSETS / "version_0.1"
    for folder in (old / "runs").iterdir():
        with pytest.raises(
            ConfigError,
            match="has schema 0, and this version of coefdyn reads schema 2",
        ) as error:
            coefdyn.load_run(folder)
        assert "\n" not in str(error.value)
    with pytest.warns(UserWarning, match="2 runs in .* are of another schema: left out"):
        assert coefdyn.load_runs(old).empty


def test_a_design_check_is_an_object() -> None:
    report = coefdyn.check_design("model=gla", "model/scaling=one")
    assert [line.principle for line in report.broken] == ["P5 score variance"]
    assert "P5 score variance" in str(report)
    with pytest.raises(ConfigError, match="model/lstm"):
        coefdyn.check_design("model=lstm")


def test_a_hybrid_is_a_pattern_of_presets() -> None:
    sizes = {"vocab_size": 8, "max_length": 16, "d_model": 16, "n_heads": 2}
    model = coefdyn.build_model(pattern=["mamba2", "rope"], n_layers=4, **sizes)
    kinds = [type(block.mixer.design.evolution).__name__ for block in model.blocks]
    assert kinds == ["Mamba2Decay", "Rotary"] * 2
    with pytest.raises(ConfigError, match=r"set model.n_layers=4"):
        coefdyn.build_model(pattern=["mamba2", "rope"], n_layers=3, **sizes)
