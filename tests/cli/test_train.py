"""coefdyn train: results on stdout, one sentence on stderr for bad input, nothing lost."""

import io
import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from coefdyn.cli import main
from tests.runs.runs import folder, run_smoke

BAD = [
    (["task=sorting"], ["task/sorting", "noisy_recall", "compression"]),
    (["scale=huge"], ["scale/huge", "lite", "paper", "smoke"]),
    (["task.vocab_size=5"], ["task.vocab_size=5 is too small", "raise it to"]),
    (["task.frac_noise=1.0"], ["task.frac_noise=1.0 must lie in [0, 1)"]),
    (["task.frac_noise=-0.1"], ["task.frac_noise=-0.1 must lie in [0, 1)"]),
    (["task=selective_copying", "task.seq_len=8"], ["task.seq_len=8 is too short"]),
    (["task.seq_len=17"], ["task.seq_len=17 must be even"]),
    (["task.num_train=0"], ["task.num_train=0 must be a whole number of at least 1"]),
    (["task.num_train=1e2"], ["num_train"]),
    (["task.multi_query=maybe"], ["multi_query"]),
    (["task.source=null"], ["task.source=None is no directory"]),
    (["task.source=nowhere"], ["nowhere is no directory", "native, mad_lab"]),
    (["task.source=mad_lab"], ["PYTHONPATH"]),
    (["task.seed=-1"], ["task.seed=-1 must be a whole number"]),
    (["~task.seed"], ["seed"]),
    (["task._target_=os.system"], ["_target_=os.system is refused"]),
    (["task._target_=coefdyn.tasks.task.np.ndarray"], ["_target_"]),
    (["optimizer._target_=subprocess.Popen"], ["_target_=subprocess.Popen is refused"]),
    (["seed=1", "logger=wandb", "logger._target_=wandb.init"], ["_target_=wandb.init is refused"]),
    (["optimizer.lr=-1.0"], ["optimizer cannot be built", "learning rate: -1.0"]),
    (["optimizer.lr=fast"], ["optimizer"]),
    (["+optimizer.momentum=0.9"], ["momentum"]),
    (["trainer.max_epochs=0"], ["trainer.max_epochs=0 must be a whole number of at least 1"]),
    (["trainer.batch_size=1.5"], ["trainer.batch_size=1.5 must be a whole number"]),
    (["trainer.precision=fp8"], ["trainer.precision=fp8", "fp32, bf16-mixed"]),
    (["trainer.clip=-1"], ["trainer.clip=-1 must be a number above 0"]),
    (["trainer.stop_at=yes"], ["trainer.stop_at=yes must be a number"]),
    (["trainer=cuda"], ["finds no GPU; use trainer=cpu"]),
    (["trainer=tpu"], ["trainer/tpu", "cpu", "cuda"]),
    (["seed=1", "trainer.devices.threads=0"], ["trainer.devices.threads=0"]),
    (["model.max_length=3"], ["model.max_length=3"]),
    (["model.vocab_size=4"], ["model.vocab_size=4"]),
    (["seed=1", "model.backend=fast"], ["model.backend=fast is not known", "sdpa, fla"]),
    (["model=gla", "model.backend=sdpa"], ["cannot serve this design", "use auto or quadratic"]),
    (["seed=1", "model.backend=flash_attn"], ["cannot be used", "pip install flash-attn"]),
    (["optimiser.lr=1"], ["optimiser"]),
    (["seed=-1"], ["seed=-1 must be a whole number"]),
    (["seed=99999999999999999999"], ["must be a whole number from 0 to 9223372036854775807"]),
    (["force=maybe"], ["force=maybe must be true or false"]),
    (["paths.results=null"], ["paths.results=None must be text"]),
    (["optimizer.betas=[0.9]"], ["optimizer cannot be built"]),
    (["optimizer._target_=torch.nn.Linear"], ["_target_=torch.nn.Linear is not a Optimizer"]),
    (["optimizer.lr=inf"], ["infinite or NaN"]),
    (["trainer.clip=inf"], ["trainer.clip=inf must be a number above 0"]),
    (["seed=1", "trainer.devices=1"], ["trainer.devices=1 must be a section"]),
    (["+trainer.foo=1"], ["trainer does not know: foo"]),
    (["+model.droput=0.1"], ["model does not know: droput"]),
    (["+dropout=0.1"], ["the configuration does not know: dropout"]),
    (["paths.results=/dev/null/results"], ["paths.results=/dev/null/results cannot be written"]),
]  # fmt: skip


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of results with one run."""
    place = tmp_path_factory.mktemp("trained")
    run_smoke(place)
    return place


@pytest.mark.parametrize(("overrides", "words"), BAD, ids=[" ".join(bad) for bad, _ in BAD])
def test_bad_input_gets_one_sentence(
    overrides: list[str],
    words: list[str],
    trained: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    shutil.copytree(trained, tmp_path, dirs_exist_ok=True)
    (record,) = tmp_path.glob("runs/*/record.json")
    kept = record.read_bytes()
    capsys.readouterr()
    assert main(["train", "scale=smoke", f"paths.results={tmp_path}", *overrides]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert len(err.strip().splitlines()) == 1
    assert err.startswith("error: ")
    for word in words:
        assert word in err
    assert record.read_bytes() == kept
    assert len(list((tmp_path / "runs").iterdir())) == 1


def test_results_go_to_stdout(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["scale=smoke", f"paths.results={tmp_path}"]
    assert main(["train", *arguments]) == 0
    first = capsys.readouterr().out
    assert "finished after 2 epochs" in first
    assert "test/accuracy" in first
    assert main(["train", *arguments]) == 0
    again = capsys.readouterr()
    assert again.out == first


def test_a_divergence_is_a_result(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "scale=smoke", f"paths.results={tmp_path}", "optimizer.lr=1e3"]) == 0
    assert "diverged at step 2" in capsys.readouterr().out


def test_multirun_trains_every_combination_and_survives_a_failure(tmp_path: Path) -> None:
    arguments = ["scale=smoke", f"paths.results={tmp_path}", "-m", "seed=0,1"]
    assert main(["train", *arguments, "task.seq_len=17,16"]) == 1
    assert len(list((tmp_path / "runs").glob("*/record.json"))) == 2
    assert main(["train", *arguments, "task.seq_len=16"]) == 0


class Harmful:
    """Creates a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (self.path,)


def test_damaged_files_of_a_run_are_named_and_left_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = folder(tmp_path, run_smoke(tmp_path))
    record, checkpoint = directory / "record.json", directory / "last.ckpt"
    whole, trap = record.read_text(), tmp_path / "harm"
    weights, saved = checkpoint.read_bytes(), io.BytesIO()
    torch.save([1], saved)
    damages = [
        (record, whole[: len(whole) // 2].encode(), "record.json cannot be read; delete it"),
        (record, b'{"schema": 2}', "record.json is incomplete; delete it"),
        (record, b"{}", "has schema 0, and this version of coefdyn reads schema 2"),
        (checkpoint, weights[: len(weights) // 2], "last.ckpt cannot be read; delete it"),
        (checkpoint, b"", "last.ckpt cannot be read; delete it"),
        (checkpoint, saved.getvalue(), "last.ckpt cannot be read; delete it"),
        (checkpoint, pickle.dumps(Harmful(trap)), "last.ckpt cannot be read; delete it"),
    ]
    for path, content, message in damages:
        record.unlink(missing_ok=True)
        checkpoint.write_bytes(weights)
        path.write_bytes(content)
        capsys.readouterr()
        assert main(["train", "scale=smoke", f"paths.results={tmp_path}"]) == 1
        err = capsys.readouterr().err.strip().splitlines()
        assert message in err[-1]
        assert path.read_bytes() == content
    assert not trap.exists()


def test_files_as_a_source(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for split, count in (("train", 32), ("test", 16)):
        (tmp_path / split).mkdir()
        tokens = np.random.default_rng(0).integers(8, size=(count, 8))
        for name in ("inputs", "targets"):
            np.save(tmp_path / split / f"{name}.npy", tokens)
    arguments = ["scale=smoke", "task=compression", f"paths.results={tmp_path / 'results'}"]
    assert main(["train", *arguments, f"task.source='{tmp_path}'"]) == 0
    (tmp_path / "test" / "targets.npy").write_bytes(b"\\x93NUMPY")
    capsys.readouterr()
    assert main(["train", *arguments, f"task.source='{tmp_path}'", "seed=1"]) == 1
    assert "targets.npy is not a readable npy file" in capsys.readouterr().err


def test_a_class_of_another_kind_is_not_even_instantiated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """torch has classes whose constructor runs a program."""
    trap = tmp_path / "harm"
    target = "torch.distributed.elastic.multiprocessing.subprocess_handler.SubprocessHandler"
    arguments = ["entrypoint=touch", f"args=['{trap}']", "env={}", "stdout=null", "stderr=null",
                 "local_rank_id=0"]  # fmt: skip
    for slot in ("task", "model.block", "optimizer"):
        more = [f"+{slot}.{argument}" for argument in arguments]
        more += ["scale=smoke", f"paths.results={tmp_path}", f"{slot}._target_={target}"]
        assert main(["train", *more]) == 1
        assert "is not a" in capsys.readouterr().err
    nested = f"+model.readout.feature_map={{_target_:{target}}}"
    assert main(["train", "scale=smoke", f"paths.results={tmp_path}", nested]) == 1
    assert "is refused" in capsys.readouterr().err
    assert not trap.exists()


def test_a_checkpoint_of_another_model_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = folder(tmp_path, run_smoke(tmp_path))
    other = folder(tmp_path, run_smoke(tmp_path, "model.d_mlp=8"))
    (directory / "record.json").unlink()
    for content in ((other / "last.ckpt").read_bytes(), _saved({})):
        (directory / "last.ckpt").write_bytes(content)
        assert main(["train", "scale=smoke", f"paths.results={tmp_path}"]) == 1
        assert "last.ckpt is not of this model" in capsys.readouterr().err


def _saved(content: object) -> bytes:
    buffer = io.BytesIO()
    torch.save(content, buffer)
    return buffer.getvalue()
