"""The wheel alone, in an empty directory: every command, the API, and a plugin."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tasks.texts import small_text

pytestmark = pytest.mark.wheel

ROOT = Path(__file__).parents[2]
PLUGIN = ROOT / "tests" / "assets" / "plugin"


class Installed:
    """A directory with the wheel in it, and an empty one to work in."""

    def __init__(self, packages: Path, place: Path) -> None:
        self.packages, self.place = packages, place

    def python(self, *arguments: str) -> str:
        """Dependencies are the environment's; coefdyn is the wheel's."""
        environment = {k: v for k, v in os.environ.items() if not k.startswith("COEFDYN")}
        environment |= {"PYTHONPATH": str(self.packages), "OMP_NUM_THREADS": "1"}
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=self.place,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{arguments}: {done.stdout}\n{done.stderr}"
        return done.stdout

    def coefdyn(self, *arguments: str) -> str:
        return self.python(str(self.packages / "bin" / "coefdyn"), *arguments)


@pytest.fixture(scope="session")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy, so that nothing of the checkout is at hand."""
    source, built, target = (tmp_path_factory.mktemp(n) for n in ("source", "built", "target"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source / name)
    for name in ("src", "conf"):
        ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
        shutil.copytree(ROOT / name, source / name, symlinks=True, ignore=ignored)
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    wheel = [*pip, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(built)]
    subprocess.run([*wheel, str(source)], check=True)
    (path,) = built.glob("coefdyn-0.2.0-*.whl")
    subprocess.run([*pip, "install", "--no-deps", "--target", str(target), str(path)], check=True)
    shutil.rmtree(source)
    return target


@pytest.fixture
def wheel(packages: Path, tmp_path: Path) -> Installed:
    return Installed(packages, tmp_path)


def test_it_is_the_wheel_that_is_tested(wheel: Installed) -> None:
    where = wheel.python("-c", "import coefdyn; print(coefdyn.__file__)").strip()
    assert Path(where).is_relative_to(wheel.packages)
    assert wheel.coefdyn("--version").strip() == "coefdyn 0.2.0"
    assert (wheel.packages / "coefdyn" / "py.typed").exists()


def test_every_command_works_in_an_empty_directory(wheel: Installed) -> None:
    text = small_text(wheel.place)
    for name in ("train", "sweep", "figure", "report", "check", "show", "prepare", "bench",
                 "doctor", "demo"):  # fmt: skip
        assert f"coefdyn {name} [key=value" in wheel.coefdyn(name, "--help")
    assert "finished after 2 epochs" in wheel.coefdyn("train", "model=gla", "scale=smoke")
    grid = ["model/readout=exp,relu", "scale=smoke", "seed=0,1"]
    assert "4 done" in wheel.coefdyn("sweep", *grid, "action=run", "jobs=2")
    assert "4 done" in wheel.coefdyn("sweep", *grid, "action=status")
    picture = wheel.coefdyn("figure", *grid, "name=mine").strip()
    assert (wheel.place / picture).stat().st_size > 10_000
    page = wheel.coefdyn("report").strip()
    assert "mine" in (wheel.place / page).read_text()
    assert "P5 score variance" in wheel.coefdyn("check", "model=gla", "out=design.png")
    assert (wheel.place / "design.png").exists()
    names = sorted(path.name for path in (wheel.place / "results" / "runs").iterdir())
    assert names[0] in wheel.coefdyn("show", names[0])
    assert "test/loss" in wheel.coefdyn("show", names[0], names[1])
    assert "quadratic" in wheel.coefdyn("doctor")
    keys = [f"{name}={text[name]}" for name in ("source", "tokenizer")]
    assert "tokens of" in wheel.coefdyn("prepare", *keys, "out=data/smoke")
    language = ["task=wikitext103", "task.vocab_size=258", "scale=smoke"]
    assert "test/perplexity" in wheel.coefdyn("train", *language)
    assert "noisy_recall" in wheel.coefdyn("bench", "suite=tasks", "repeats=1", "format=json")
    assert "readouts.png" in wheel.coefdyn("demo", "scale=smoke")
    written = {path.name for path in wheel.place.iterdir()}
    assert {"results", "data", "design.png"} <= written


API = """
import coefdyn, torch
mixer = coefdyn.build_mixer("gla", d_model=64, n_heads=4, readout="relu")
assert mixer(torch.randn(1, 3, 64)).shape == (1, 3, 64)
sizes = dict(vocab_size=32, max_length=128, d_model=64, n_heads=4, n_layers=2)
model = coefdyn.build_model("mamba2", **sizes)
run = coefdyn.train("model=gla", "task=noisy_recall", "scale=smoke", results="results")
assert coefdyn.load_run(f"results/runs/{run.run_id}").record == run.record
assert len(coefdyn.load_runs("results")) == 1
assert coefdyn.check_design("model=gla", "model/scaling=one").broken
"""

PLUGIN_TEST = """
from coefdyn.testing import check_choice
check_choice("readout", "square", plugins=["my_package"])
check_choice("evolution", "half_life", plugins=["my_package"])
check_choice("task", "which_first", plugins=["my_package"])
try:
    check_choice("readout", "signed_square", plugins=["my_package"])
except AssertionError as error:
    print(error)
import coefdyn
run = coefdyn.train("model=causal_mean", "task=which_first", "scale=smoke", plugins=["my_package"])
assert run.record.coefficients is None
"""


def test_the_api_works_in_an_empty_directory(wheel: Installed) -> None:
    wheel.python("-c", API)


def test_a_plugin_works_with_the_wheel(wheel: Installed) -> None:
    shutil.copytree(PLUGIN / "my_package", wheel.place / "my_package")
    assert "SignedSquare.nonnegative must be False" in wheel.python("-c", PLUGIN_TEST)
    named = "plugins=[my_package]"
    grid = ["experiment=my_ablation", "scale=smoke", named]
    assert "8 done" in wheel.coefdyn("sweep", *grid, "action=run")
    picture = wheel.coefdyn("figure", *grid).strip()
    assert (wheel.place / picture).exists()
    assert "P4" in wheel.coefdyn("check", "model/evolution=half_life", named)
