"""What a newcomer types first: help, misspelt keys, an experiment's name, Ctrl-C, a terminal."""

import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from coefdyn.cli import COMMANDS, main
from tests import SCRIPTS
from tests.cli.terminal import Terminal

pytestmark = pytest.mark.long

SMALL = ["scale=smoke", "task=noisy_recall"]
LONG = [*SMALL, "task.num_train=4096", "trainer.max_epochs=1000"]


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_help_has_words_examples_and_keys(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "--help"]) == 0
    said = capsys.readouterr().out
    assert said.startswith(f"coefdyn {command} [key=value ...]: ")
    if command != "demo":
        assert f"\n\nExamples\n  coefdyn {command}" in said
        assert "\n\nKeys, their defaults and what they are\n" in said
    assert "hydra" not in said
    assert "${scale." not in said
    assert max(map(len, said.splitlines())) <= 130


def test_help_of_training_lists_choices_and_the_keys_of_its_sections(
    capsys: pytest.CaptureFixture[str],
) -> None:
    main(["train", "-h"])
    said = capsys.readouterr().out
    assert re.search(r"\n  model/readout +elu_plus_one, exp, .*", said)
    assert re.search(r"\n  experiment +all_principles_lm, architectures", said)
    assert "\n    warmup_steps: 0 # of a linear rise" in said
    assert "\n    betas: [0.9, 0.98]\n" in said


@pytest.mark.parametrize("script", sorted(path.name for path in SCRIPTS.glob("*.py")))
def test_every_script_has_help(script: str) -> None:
    done = subprocess.run([sys.executable, SCRIPTS / script, "--help"], capture_output=True,
                          text=True, check=False)  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("coefdyn ")


MEANT = [
    ("train model.nheads=2", "model.nheads is no key", "did you mean model.n_heads=2?"),
    ("train lr=1e-3", "lr is no key", "did you mean optimizer.lr=1e-3?"),
    ("train readout=relu", "readout is no key", "did you mean model/readout=relu?"),
    ("train -m modle=gla,mamba2", "modle is no key", "did you mean model=gla,mamba2?"),
    ("train model.readout=relu", "names no file", "a choice is made by model/readout=relu"),
    ("train optimizer.lr=fast", "optimizer.lr=fast", "must be a number"),
    ("train tsak=noisy_recall", "tsak is no key", "did you mean task=noisy_recall?"),
    ("sweep job=2 model=gla", "job is no key", "did you mean jobs=2?"),
    ("sweep model.n_layer=2,4", "model.n_layer is no key", "did you mean model.n_layers=2,4?"),
    ("check n_heads=2", "n_heads is no key", "did you mean model.n_heads=2?"),
    ("report form=json", "form is no key", "did you mean format=json?"),
    ("train xyzzy=1", "xyzzy is no key", "coefdyn <command> --help lists them"),
    ("train model/readout=relo", "model/readout/relo", "relu"),
    ("train task=noisy", "task/noisy", "noisy_recall"),
]


@pytest.mark.parametrize(("line", "what", "remedy"), MEANT)
def test_a_wrong_key_gets_the_nearest_right_one(
    line: str, what: str, remedy: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    command, *rest = line.split()
    extra = [] if command == "report" else ["scale=smoke", f"paths.results={tmp_path}"]
    assert main([command, *rest, *extra]) == 1
    said = capsys.readouterr()
    assert said.err.startswith("error: ")
    assert said.err.count("\n") == 1
    assert what in said.err
    assert remedy in said.err
    assert said.out == ""


def test_a_task_without_sizes_says_where_they_belong(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "conf" / "task").mkdir(parents=True)
    (tmp_path / "conf" / "task" / "mine.yaml").write_text(
        "name: mine\n_target_: coefdyn.tasks.mad.memorization.Memorization\nsource: native\n"
        "seed: ${seed}\nvocab_size: ${scale.mine.task.vocab_size}\nseq_len: 16\n"
    )
    assert main(["train", f"plugins=[{tmp_path}]", "task=mine", "scale=smoke"]) == 1
    said = capsys.readouterr().err
    assert "no sizes for the task mine (scale.mine.task.vocab_size)" in said
    assert "conf/scale of your plugin" in said


def test_an_experiment_is_a_grid_and_not_a_run(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    given = ["train", "experiment=principle2_readout", "scale=smoke", f"paths.results={tmp_path}"]
    assert main(given) == 1
    said = capsys.readouterr().err
    assert "experiment=principle2_readout is a grid, not a run" in said
    for remedy in ("coefdyn sweep experiment=principle2_readout action=run", "train -m", "task",
                   "model/readout", "seed"):  # fmt: skip
        assert remedy in said
    assert not list(tmp_path.iterdir())
    point = ["task=memorization", "model/readout=relu", "seed=0", "optimizer.lr=5e-3",
             "optimizer.weight_decay=0"]  # fmt: skip
    assert main([*given, *point]) == 0
    assert len(list((tmp_path / "runs").iterdir())) == 1


def test_many_runs_are_headed_by_what_differs(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    given = ["model/evolution=identity,constant", "seed=0,1", f"paths.results={tmp_path}"]
    assert main(["train", "-m", *SMALL, *given]) == 0
    lines = capsys.readouterr().out.splitlines()
    heads = [line.partition("  accuracy ")[0] for line in lines if "  accuracy " in line]
    assert heads == [f"evolution={name} seed={seed}" for name in ("identity", "constant")
                     for seed in (0, 1)]  # fmt: skip
    assert all(re.search(r"accuracy 0\.\d{4}  .*/runs/[0-9a-f]{16}$", line) for line in lines)


def test_a_sweep_ends_with_means_over_seeds(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    grid = [*SMALL, "model=gla,mamba2", "seed=0,1,2", f"paths.results={tmp_path}"]
    assert main(["train", "-m", *grid]) == 0
    lines = capsys.readouterr().out.splitlines()
    found = [float(line.split("accuracy ")[1].split()[0]) for line in lines if "model=gla" in line]
    assert main(["sweep", *grid, "action=status"]) == 0
    said = capsys.readouterr().out
    (row,) = [line for line in said.splitlines() if "│ gla" in line]
    cells = [cell.strip() for cell in row.strip("│").split("│")]
    assert cells[0] == "gla"
    assert float(cells[1]) == pytest.approx(sum(found) / 3, abs=1e-4)
    assert cells[2] == f"{min(found):.4f} to {max(found):.4f}"
    assert cells[3] == "3"


def _started(tmp_path: Path, *overrides: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "coefdyn", "train", *overrides, f"paths.results={tmp_path}"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_an_interrupted_run_says_so_and_goes_on(tmp_path: Path) -> None:
    process = _started(tmp_path, *LONG, "check=false")
    end = time.monotonic() + 120
    while not list(tmp_path.glob("runs/*/metrics.csv")) and time.monotonic() < end:
        time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert out == ""
    assert err.strip() == "interrupted: what was saved is kept; the same command goes on"
    (checkpoint,) = tmp_path.glob("runs/*/last.ckpt")
    assert checkpoint.stat().st_size > 0
    assert not list(tmp_path.glob("runs/*/error.txt"))
    assert not list(tmp_path.glob("runs/*/lock.*"))


@pytest.mark.parametrize("seconds", [0.3, 1.5])
def test_an_interrupt_during_imports_is_no_traceback(tmp_path: Path, seconds: float) -> None:
    process = _started(tmp_path, *LONG)
    time.sleep(seconds)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode in (130, -signal.SIGINT)
    if process.returncode == 130:
        assert err.splitlines()[-1].startswith("interrupted: ")
        assert "Traceback" not in err


def test_a_sweep_in_a_terminal_ends_with_lines_and_a_table(tmp_path: Path) -> None:
    grid = [*SMALL, "model=gla,mamba2", "seed=0,1"]
    terminal = Terminal(["sweep", *grid, "action=run", "jobs=2"], tmp_path)
    assert terminal.read() == 0
    lines = terminal.text().splitlines()
    done = [line for line in lines if re.match(r"\d/4 [0-9a-f]{16} accuracy 0\.\d+, \d+ s: ", line)]
    assert [line[:4] for line in done] == ["1/4 ", "2/4 ", "3/4 ", "4/4 "]
    assert len([line for line in lines if "worker" in line]) == 0  # the live table is gone
    assert len([line for line in lines if line.startswith("┏")]) == 1
    assert any(re.match(r"│ gla +│ 0\.\d{4}", line) for line in lines)
    assert not any("epoch 1/" in screen and "━━ " in screen for screen in terminal.shown)


def test_a_run_in_a_terminal_shows_epoch_loss_and_accuracy(tmp_path: Path) -> None:
    longer = ["task.num_train=2048", "trainer.max_epochs=6", "check=false"]
    terminal = Terminal(["train", *SMALL, *longer], tmp_path)
    assert terminal.read() == 0
    bars = [line for screen in terminal.shown for line in screen.splitlines() if "epoch " in line]
    shown = [re.match(r"epoch (\d)/6 .* \d+/768 loss \d\.\d{4}", line) for line in bars]
    epochs = [int(match[1]) for match in shown if match]
    assert epochs
    assert min(epochs) >= 1
    assert max(epochs) <= 6
    assert any(re.search(r"loss \d\.\d+ accuracy 0\.\d{4}", line) for line in bars)
    assert "epoch 6/6" not in terminal.text()  # the bar is gone, the result is there
    assert "test/accuracy" in terminal.text()
    assert "backend=auto" not in terminal.text()


@pytest.mark.parametrize(
    "command",
    [["check", "model=gla"], ["sweep", *SMALL, "seed=0,1"], ["sweep", *SMALL, "action=status"],
     ["train", "--help"]],
    ids=lambda words: " ".join(words[:1] + words[-1:]),
)  # fmt: skip
def test_looking_does_not_import_lightning(command: list[str], tmp_path: Path) -> None:
    code = f"import sys; from coefdyn.cli import main; main({command!r}); " \
           "print('lightning' in sys.modules)"  # fmt: skip
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True,
                          cwd=tmp_path)  # fmt: skip
    assert done.stdout.splitlines()[-1] == "False"
