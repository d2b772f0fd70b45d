"""What this machine can use: devices, kernels, packages, a cluster; and why it cannot use more."""

import importlib.metadata
import importlib.util
import os
import platform
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

from coefdyn.config.build import build_design_mixer
from coefdyn.config.compose import compose
from coefdyn.mixer.backends import ADAPTERS
from coefdyn.mixer.design import Design
from coefdyn.mixer.forms.choice import FORMS

# The module, what pip installs it by, and the option that needs it.
OPTIONAL = (
    ("tiktoken", "tiktoken", "prepare engine=tiktoken"),
    ("datasets", "'coefdyn[hub]'", "prepare source=hub"),
    ("wandb", "'coefdyn[wandb]'", "logger=wandb"),
    ("submitit", "'coefdyn[slurm]'", "train -m hydra/launcher=slurm"),
)
# The presets of the paper's Table 1 and two of its experiments. All others are variants of these.
PRESETS = (
    "softmax_attention",
    "relu_attention",
    "linear_attention",
    "normalized_attention",
    "gla",
    "mamba2",
    "deltanet",
    "gated_deltanet",
    "householder",
    "mlstm",
)


@dataclass(frozen=True)
class Part:
    """One line of the report. `note` says what the part is for, or why it is not usable here."""

    part: str
    name: str
    usable: bool
    version: str
    note: str


def examine() -> Iterator[Part]:
    """Every part, usable or not."""
    yield from _machine()
    yield from _backends()
    for module, installs, use in OPTIONAL:
        installed = _is_installed(module)
        note = use if installed else f"for {use}: pip install {installs}"
        yield Part("optional", module, installed, _version(module), note)
    yield _cluster()
    for corpus in ("wikitext103", "wikitext2"):
        yield _text(corpus)


def _machine() -> Iterator[Part]:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    yield Part("machine", "python", True, platform.python_version(), platform.platform())
    note = f"{cores} cores, {torch.get_num_threads()} threads of torch"
    yield Part("machine", "cpu", True, torch.__version__, f"{platform.machine()}, {note}")
    if not torch.cuda.is_available():
        why = "torch sees no device" if torch.version.cuda else "this torch is built without CUDA"
        yield Part("machine", "cuda", False, torch.version.cuda or "", why)
    for index in range(torch.cuda.device_count()):
        gpu = torch.cuda.get_device_properties(index)
        size = f"{gpu.total_memory / 2**30:.0f} GB, {gpu.major}.{gpu.minor}"
        half = "bf16" if gpu.major >= 8 else "no bf16: use trainer.precision=fp32"
        note = f"{gpu.name}, {size}, {half}"
        yield Part("machine", f"cuda:{index}", True, torch.version.cuda or "", note)


def _backends() -> Iterator[Part]:
    designs = {preset: _design(preset) for preset in PRESETS}
    for name in FORMS:
        linear = [p for p, design in designs.items() if design.recurrence_obstacle is None]
        served = ", ".join(linear) if name == "linear" else "every design"
        yield Part("backend", name, True, "", f"serves {served}")
    for name, kernel in ADAPTERS.items():
        served = ", ".join(p for p, design in designs.items() if kernel.obstacle(design) is None)
        note = (
            f"serves {served}" if kernel.absence is None else f"{kernel.absence}; serves {served}"
        )
        yield Part("backend", name, kernel.absence is None, _version(kernel.module), note)


def _design(preset: str) -> Design:
    return build_design_mixer(compose([f"model={preset}", "model.backend=auto"])).design


def _cluster() -> Part:
    if shutil.which("sbatch") is None:
        return Part("cluster", "slurm", False, "", "for sweep action=submit: no sbatch here")
    version = subprocess.run(["sbatch", "--version"], capture_output=True, text=True, check=False)
    if version.returncode != 0:
        why = (version.stderr.strip().splitlines() or ["it ends with an error"])[-1]
        return Part("cluster", "slurm", False, "", f"for sweep action=submit: {why}")
    return Part("cluster", "slurm", True, version.stdout.strip(), "sweep action=submit")


def _text(corpus: str) -> Part:
    where = Path("data") / corpus
    splits = [s for s in ("train", "validation", "test") if (where / f"{s}.json").exists()]
    remedy = f"for task=wikitext103: coefdyn prepare ... out=data/{corpus} makes it"
    return Part("data", corpus, len(splits) == 3, "", "" if len(splits) == 3 else remedy)


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # its parent package is missing
        return False


def _version(module: str) -> str:
    """The version of the package that has this module; empty if it is not installed."""
    names = importlib.metadata.packages_distributions().get(module.partition(".")[0], [])
    fitting = [n for n in names if n.replace("-", "_") in module.replace(".", "_")] or names
    return importlib.metadata.version(fitting[0]) if fitting and _is_installed(module) else ""
