"""Runs as SLURM job arrays.

A submission writes the missing runs to a manifest, so that later edits of conf/ do not change
queued runs. Each job of the array trains `pack` of them, in the same pool as on one machine.
"""

import hashlib
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from coefdyn.config.grid import PlannedRun
from coefdyn.config.identity import run_id
from coefdyn.config.schema import Slurm
from coefdyn.errors import ConfigError
from coefdyn.runs.record import digests, write_atomically
from coefdyn.sweeps.pool import StoppedError, run_all
from coefdyn.sweeps.progress import Progress
from coefdyn.sweeps.state import unfinished

DEFAULT_MAX_ARRAY = 1001  # SLURM's default
ANY_CODE = "any_code"  # a file beside a manifest: its runs may be trained by newer code


def options_of_sbatch(slurm: Slurm) -> list[str]:
    values = {
        "partition": slurm.partition,
        "account": slurm.account,
        "time": slurm.time,
        "cpus-per-task": slurm.cpus,
        "mem": slurm.mem,
        "gpus": slurm.gpus,
        "signal": f"B:USR1@{slurm.grace}",
    }
    options = [f"--{name}={value}" for name, value in values.items() if value is not None]
    return [*options, *map(str, slurm.extra)]


def submit(runs: Sequence[PlannedRun], name: str, slurm: Slurm) -> str:
    """Queue the runs that are not queued yet. Returns a message for the user."""
    if not shutil.which("sbatch"):
        raise ConfigError(
            "sbatch is not on this machine; submit from a login node of the cluster, or use "
            "action=run jobs=N here"
        )
    queued = _queued(results_of(runs[0]) / "slurm")
    fresh = [run for run in runs if run.run_id not in queued]
    note = f"{len(runs) - len(fresh)} are queued already; " if len(fresh) < len(runs) else ""
    if not fresh:
        return f"{note}nothing to submit"
    stamp = f"{time.strftime('%Y%m%d-%H%M%S')}-{uuid.uuid4().hex[:4]}"
    directory = results_of(fresh[0]).resolve() / "slurm" / f"{name}-{stamp}"
    try:
        directory.mkdir(parents=True)
        write_manifest(directory / "manifest.json", fresh)
    except OSError as error:
        raise ConfigError(
            f"paths.results={results_of(fresh[0])} cannot be written to: {error.strerror}"
        ) from error
    jobs = -(-len(fresh) // slurm.pack)
    ids: dict[str, int] = {}  # array id: number of its first job
    for first in range(0, jobs, _max_array()):
        size = min(_max_array(), jobs - first)
        ids[_sbatch(directory, name, first, size, slurm)] = first
        write_atomically(directory / "jobs.json", json.dumps({"arrays": ids, "pack": slurm.pack}))
    return (
        f"{note}{len(fresh)} runs in {jobs} jobs, SLURM {', '.join(ids)}; "
        f"manifest and logs in {directory}"
    )


def _sbatch(directory: Path, name: str, first: int, size: int, slurm: Slurm) -> str:
    """Queue an array of `size` jobs, which begins with job number `first`. Returns its id."""
    script = directory / f"jobs-{first}.sh"
    command = [sys.executable, "-m", "coefdyn.sweeps.slurm", str(directory / "manifest.json")]
    numbers = [str(n) for n in (first, slurm.pack, slurm.jobs, slurm.grace)]
    # exec, so that the signals that SLURM sends to the script reach Python.
    script.write_text(f"#!/bin/bash\nexec {shlex.join([*command, *numbers])}\n")
    limit = f"%{slurm.max_parallel}" if slurm.max_parallel else ""
    arguments = [
        "sbatch",
        "--parsable",
        f"--job-name={name}",
        f"--chdir={Path.cwd()}",
        # SLURM replaces %A and %a; a % in our own path is doubled
        f"--output={str(directory).replace('%', '%%')}/%A_%a.log",
        "--open-mode=append",
        "--requeue",
        f"--array=0-{size - 1}{limit}",
        *options_of_sbatch(slurm),
        str(script),
    ]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ConfigError(f"sbatch refused: {' '.join(done.stderr.split())}")
    return done.stdout.strip().partition(";")[0]


def _max_array() -> int:
    """The largest number of jobs that the cluster allows in an array."""
    done = subprocess.run(
        ["scontrol", "show", "config"], capture_output=True, text=True, check=False
    )
    for line in done.stdout.splitlines():
        key, _, value = line.partition("=")
        if key.strip() == "MaxArraySize" and value.strip().isdigit() and int(value) > 1:
            return int(value)
    return DEFAULT_MAX_ARRAY


def _queued(place: Path) -> set[str]:
    """The run_ids of submissions in `place` that are still queued or running."""
    names: set[str] = set()
    for file in place.glob("*/jobs.json"):
        try:
            submitted = json.loads(file.read_text())
            frozen = json.loads((file.parent / "manifest.json").read_text())["runs"]
            runs = [run["run_id"] for run in frozen]
            arrays, pack = submitted["arrays"], submitted["pack"]
        except (OSError, ValueError, KeyError, TypeError):  # an incomplete or deleted submission
            continue
        for array, first in arrays.items():
            for index in _indices(array):
                names.update(_share(runs, first + index, pack))
    return names


def _indices(array: str) -> list[int]:
    """The indices of the jobs of an array that are queued or running."""
    done = subprocess.run(
        ["squeue", "--noheader", "--array", "--job", array, "--format=%K"],
        capture_output=True,
        text=True,
        check=False,
    )
    over = "invalid job id" in done.stderr.lower()  # SLURM forgets jobs that ended long ago
    if done.returncode and not over:
        why = " ".join(done.stderr.split()) or f"exit code {done.returncode}"
        raise ConfigError(f"squeue does not say what is queued ({why}); try again")
    return [int(index) for index in done.stdout.split() if index.isdigit()]


def _share(items: Sequence[Any], job: int, pack: int) -> Sequence[Any]:
    """The items of job number `job`."""
    return items[job * pack : (job + 1) * pack]


def write_manifest(path: Path, runs: Sequence[PlannedRun]) -> None:
    """Write runs with a digest of them and of the code."""
    frozen = [_frozen(run) for run in runs]
    about = {"digest": _digest(frozen), "code": digests()["code"]}
    write_atomically(path, json.dumps(about | {"runs": frozen}))


def _frozen(run: PlannedRun) -> dict[str, Any]:
    """A run as plain values. Its results folder is absolute, so a job may start anywhere."""
    paths = {**run.values["paths"], "results": str(results_of(run).resolve())}
    return {**asdict(run), "point": list(run.point), "values": {**run.values, "paths": paths}}


def results_of(run: PlannedRun) -> Path:
    return Path(run.values["paths"]["results"])


def read_manifest(path: Path) -> list[PlannedRun]:
    """The runs of a manifest; ConfigError if it or the code has changed since the submission."""
    try:
        manifest: Mapping[str, Any] = json.loads(path.read_text())
        runs = [PlannedRun(**{**run, "point": tuple(run["point"])}) for run in manifest["runs"]]
        same, code = _digest(manifest["runs"]) == manifest["digest"], manifest["code"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            f"the manifest {path} cannot be read; submit again, which sends what is missing"
        ) from error
    if not same or any(run_id(run.values) != run.run_id for run in runs):
        raise ConfigError(
            f"the manifest {path} was changed after it was submitted; submit again, which sends "
            "what is missing"
        )
    if code != digests()["code"] and not (path.parent / ANY_CODE).exists():
        raise ConfigError(
            f"the code is another than when {path} was submitted; go back to that, or submit "
            f"again, or go on with this one by an empty file {path.parent / ANY_CODE}"
        )
    return runs


def _digest(runs: Sequence[Mapping[str, Any]]) -> str:
    return hashlib.sha256(json.dumps(runs, sort_keys=True).encode()).hexdigest()


def main(arguments: Sequence[str]) -> int:
    """Train the runs of one job of an array. Exit code: 0 if all are recorded, 1 if not."""
    path, first, pack, jobs, grace = Path(arguments[0]), *map(int, arguments[1:])
    index = int(os.environ.get("SLURM_ARRAY_TASK_ID", 0))
    share = _share(read_manifest(path), first + index, pack)
    todo = unfinished(share)
    print(f"{len(todo)} of {len(share)} runs to do", file=sys.stderr, flush=True)
    try:
        if todo:
            with Progress(todo, jobs) as progress:
                run_all(todo, jobs, progress, max(5.0, grace - 15.0))
    except StoppedError as stopped:
        print(f"{stopped}: saved", file=sys.stderr, flush=True)
        if stopped.exit_code == 128 + signal.SIGUSR1:
            _requeue()
        return stopped.exit_code
    return 1 if unfinished(share) else 0


def _requeue() -> None:
    """Queue this job again, because its time is nearly over."""
    job = os.environ["SLURM_JOB_ID"]
    if "SLURM_ARRAY_TASK_ID" in os.environ:
        job = f"{os.environ['SLURM_ARRAY_JOB_ID']}_{os.environ['SLURM_ARRAY_TASK_ID']}"
    subprocess.run(["scontrol", "requeue", job], check=False)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except ConfigError as error:
        sys.exit(f"error: {error}")
