"""The parts of the check. Each yields rows of measurements, as dictionaries for JSON."""

import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from coefdyn.acceptance.stepping import measured, population_step, training_step
from coefdyn.benchmarks.lengths import GRID, LONGEST, MODELS, SIZES, time_of
from coefdyn.config.build import build_design_mixer, build_task
from coefdyn.config.compose import Config, compose
from coefdyn.config.grid import PlannedRun, plan
from coefdyn.config.plugins import options
from coefdyn.doctor import examine
from coefdyn.errors import ConfigError
from coefdyn.mixer.backends import ADAPTERS, trial
from coefdyn.mixer.backends.choice import check_backend
from coefdyn.mixer.sequence_mixer import SequenceMixer
from coefdyn.paper.looks import PRESETS
from coefdyn.runs.run import run_one

Row = dict[str, Any]


class NotHereError(Exception):
    """A part that this machine cannot run, with what it lacks."""


@dataclass(frozen=True)
class Machine:
    """Where the check runs. Without a GPU it runs at smoke, so that its own code is tried."""

    device: torch.device

    @property
    def has_gpu(self) -> bool:
        return self.device.type == "cuda"

    @property
    def name(self) -> str:
        return torch.cuda.get_device_name(self.device) if self.has_gpu else "cpu"

    @property
    def overrides(self) -> list[str]:
        return ["scale=paper", "trainer=cuda"] if self.has_gpu else ["scale=smoke", "trainer=cpu"]

    @property
    def repeats(self) -> int:
        return 20 if self.has_gpu else 2

    @cached_property
    def experiments(self) -> dict[str, list[PlannedRun]]:
        """The runs of every experiment, by its name."""
        stems = options("experiment")
        return {stem: plan([f"experiment={stem}", *self.overrides]) for stem in stems}


def machine(_here: Machine) -> Iterator[Row]:
    """What the machine has."""
    yield from (asdict(part) for part in examine())


def tests(here: Machine) -> Iterator[Row]:
    """The tests marked gpu."""
    root = Path(__file__).parents[3]
    if not (root / "tests").is_dir():
        raise NotHereError("tests come with the repository, not with the wheel")
    if not here.has_gpu:
        raise NotHereError("they need a GPU")
    command = (
        sys.executable,
        "-m",
        "pytest",
        "-m",
        "gpu",
        "-q",
        "--no-header",
        str(root / "tests"),
    )
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=root)
    row: Row = {"exit_code": done.returncode, "output": done.stdout.splitlines()[-30:]}
    yield row | ({"failed": f"pytest ends with {done.returncode}"} if done.returncode else {})


def trials(here: Machine) -> Iterator[Row]:
    """Every kernel's trial at the shapes of all experiments."""
    usable = {name: kernel for name, kernel in ADAPTERS.items() if kernel.absence is None}
    seen: set[str] = set()
    for stem, runs in here.experiments.items():
        for run in {_shape(run): run for run in runs}.values():
            subject, mixer = _subject(run.config, here.device)
            for name, kernel in usable.items():
                key = trial.key_of(kernel, subject)
                if key in seen or kernel.obstacle(subject.design) is not None:
                    continue
                seen.add(key)
                width = max(mixer.width, mixer.value_width)
                misfit = kernel.misfit(subject.design, width, here.device, subject.half)
                row = {"experiment": stem, "kernel": name, "what": key, "misfit": misfit}
                if misfit is None:
                    own_form = mixer.own_form(subject.shape[1])
                    row |= asdict(trial.tried(kernel, subject, own_form))
                yield row


def throughput(here: Machine) -> Iterator[Row]:
    """A training step of every preset by every backend that can compute it."""
    for preset in PRESETS:
        config = _noisy_recall(here, f"model={preset}")
        design = build_design_mixer(config).design
        length, batch = build_task(config).length, config.settings.trainer.batch_size
        for backend in ("auto", "quadratic", "linear", *ADAPTERS):
            row: Row = {"preset": preset, "backend": backend}
            try:
                check_backend(backend, design)
            except ValueError as reason:
                yield row | {"cannot": _sentence(reason)}
                continue
            try:
                step = training_step(config, length, here.device, backend)
                yield row | measured(step, batch * length, here.device, here.repeats)
            except Exception as error:  # the other backends go on
                yield row | {"failed": _sentence(error)}


def populations(here: Machine) -> Iterator[Row]:
    """Steps of 1 to 32 models at once."""
    for members in (1, 2, 4, 8, 16, 32)[: None if here.has_gpu else 3]:
        config = _noisy_recall(here, "model=softmax_attention")
        length, batch = build_task(config).length, config.settings.trainer.batch_size
        step = population_step(config, length, here.device, members)
        tokens = members * batch * length
        yield {"members": members} | measured(step, tokens, here.device, here.repeats)


def short_runs(here: Machine) -> Iterator[Row]:
    """An epoch of one run of every experiment, and the hours that all its runs would take."""
    for stem, runs in here.experiments.items():
        row: Row = {"experiment": stem, "runs": len(runs)}
        with tempfile.TemporaryDirectory() as results:
            one = ["trainer.max_epochs=1", "trainer.test_every=1", f"paths.results={results}"]
            try:
                record = run_one(compose([*runs[0].point, *here.overrides, *one]))
            except ConfigError as reason:  # such as text that was not prepared
                yield row | {"cannot": _sentence(reason)}
                continue
            except Exception as error:  # the other experiments go on
                yield row | {"failed": _sentence(error)}
                continue
        epochs = sum(run.values["trainer"]["max_epochs"] for run in runs)
        yield row | {
            "seconds_per_epoch": record.seconds["training"],
            "seconds_per_test": record.seconds["testing"],
            "hours_of_all": epochs * record.seconds["training"] / 3600,
            "backend": record.backend,
            "device": record.device,
        }


def lengths(here: Machine) -> Iterator[Row]:
    """Principle 1: FlashAttention against Mamba-2's scan, or what stands in for them here."""
    kernels = {"quadratic": "flash_attn", "linear": "mamba_ssm"}
    grid = GRID if here.has_gpu else GRID[:3]
    for length in grid:
        for form, model in MODELS.items():
            if length > LONGEST[form]:
                continue
            mixer = build_design_mixer(compose([*SIZES, f"model={model}"])).to(here.device)
            present = here.has_gpu and ADAPTERS[kernels[form]].absence is None
            mixer.backend = kernels[form] if present else "auto"
            half = torch.bfloat16 if here.has_gpu else None
            milliseconds = time_of(mixer, length, here.device, half)
            yield {"form": form, "length": length, "milliseconds": milliseconds,
                   "backend": mixer.form_used}  # fmt: skip


PARTS: dict[str, Callable[[Machine], Iterator[Row]]] = {
    part.__name__: part
    for part in (machine, tests, trials, throughput, populations, short_runs, lengths)
}


def _noisy_recall(here: Machine, *overrides: str) -> Config:
    return compose(["task=noisy_recall", *overrides, *here.overrides])


def _shape(run: PlannedRun) -> str:
    """What a layer of the run depends on: many runs differ in seed and rate only."""
    task, trainer = run.values["task"], run.values["trainer"]
    sizes = (task["name"], task["seq_len"], trainer["batch_size"], trainer["precision"])
    return repr((run.values["model"], sizes))


def _subject(config: Config, device: torch.device) -> tuple[trial.Subject, SequenceMixer]:
    """What a run's first layer would be tried on."""
    mixer = build_design_mixer(config).to(device)
    length, size = build_task(config).length, config.settings.trainer.batch_size
    half = torch.bfloat16 if config.settings.trainer.precision == "bf16-mixed" else None
    return mixer.subject((size, length, mixer.d_model), half), mixer


def _sentence(error: Exception) -> str:
    words = " ".join(str(error).split())
    return words[:300] or type(error).__name__
