"""`coefdyn train`: trains one run, a population, or with -m every combination of values."""

import contextlib
import logging
import signal
import sys
import warnings
from collections.abc import Sequence
from functools import partial

from coefdyn.allocator import keep_freed_memory
from coefdyn.config.compose import Config, compose, one_sentence
from coefdyn.config.multirun import left_open, multirun, sweep_points, varied
from coefdyn.errors import ConfigError
from coefdyn.principles.check import check
from coefdyn.runs.archive import already_recorded
from coefdyn.runs.lock import LockedError, LostLockError
from coefdyn.runs.population.fusing import listed_members
from coefdyn.runs.record import Record


def run(arguments: Sequence[str]) -> int:
    """Exit code: 0 if every run is recorded (a divergence is a result), 1 if not."""
    warnings.filterwarnings("ignore", module=r"lightning\.")  # about Lightning's internals
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    overrides = [argument for argument in arguments if not argument.startswith("-")]
    if len(overrides) < len(arguments):  # -m, --cfg, ...
        keys = varied(sweep_points([o for o in overrides if not o.startswith("hydra")]))
        return multirun(arguments, partial(train, keys=keys))
    if open_keys := left_open(overrides) if _names_a_grid(overrides) else []:
        name = next(o for o in overrides if o.startswith("experiment="))
        raise ConfigError(
            f"{name} is a grid, not a run: coefdyn sweep {name} action=run does all of it, "
            f"coefdyn train -m {name} too; for one of its points also give {', '.join(open_keys)}"
        )
    return train(compose(arguments))


def _names_a_grid(overrides: Sequence[str]) -> bool:
    return any(o.startswith("experiment=") and o != "experiment=null" for o in overrides)


def train(config: Config, keys: Sequence[str] = ()) -> int:
    """Train one run and print a summary. Of several processes only the first prints.

    `keys` are those in which the runs of one command differ; the summary is then one line.
    """
    members = listed_members(config)
    if len(members) == 1 and config.settings.trainer.devices.strategy != "ddp":
        record = already_recorded(members[0])
        if record is not None:
            print(line(config, record, keys) if keys else summary(members[0], record))
            return 0
    from lightning.pytorch.utilities.exceptions import SIGTERMException  # takes seconds

    from coefdyn.runs.processes import rank_here
    from coefdyn.runs.run import run_one

    keep_freed_memory()
    quiet = config.settings.trainer.devices.strategy == "ddp" and rank_here() > 0
    if quiet:
        logging.getLogger("coefdyn").setLevel(logging.CRITICAL)
    else:
        _warn(config)
    try:
        if len(members) > 1:
            return _train_members(members)
        record = run_one(members[0])
        message, code = line(config, record, keys) if keys else summary(members[0], record), 0
    except (ConfigError, LockedError, LostLockError) as error:
        message, code = f"error: {error}", 1
    except SIGTERMException:
        message, code = "asked to end; the same command goes on", 128 + signal.SIGTERM
    if not quiet:
        print(message, file=sys.stderr if code else sys.stdout, flush=True)
    return code


def _train_members(members: Sequence[Config]) -> int:
    """Train a population. Print a summary or an error for each member."""
    from coefdyn.runs.population.training import train_population

    code = 0
    for config, ending in zip(members, train_population(members), strict=True):
        if isinstance(ending, Exception):
            print(f"error: {one_sentence(ending)}", file=sys.stderr)
            code = 1
        else:
            print(summary(config, ending), flush=True)
    return code


def _warn(config: Config) -> None:
    """Print one line if the design breaks a principle, which may be the purpose of the run."""
    if not config.settings.check or config.settings.model.mixer is not None:
        return
    with contextlib.suppress(ConfigError):  # the run itself reports it
        broken = check(config).broken
        words = "; ".join(f"{line.principle}: {line.reason} ({line.number})" for line in broken)
        if words:
            print(f"warning: this design breaks {words}; check=false hides this", file=sys.stderr)


def line(config: Config, record: Record, keys: Sequence[str]) -> str:
    """One line: the values of `keys`, the results and the folder."""
    point = [o for o in config.overrides if o.partition("=")[0] in keys]
    short = " ".join(o.removeprefix("model/") for o in point)
    perplexity = record.metrics.get("test/perplexity")
    numbers = f"accuracy {record.metrics['test/accuracy']:.4f}"
    numbers += f" perplexity {perplexity:.2f}" if perplexity is not None else ""
    if record.diverged_at_step is not None:
        numbers += f" (diverged at step {record.diverged_at_step})"
    return f"{short}  {numbers}  {config.settings.paths.results}/runs/{record.run_id}"


def summary(config: Config, record: Record) -> str:
    status: str = record.status
    if record.diverged_at_step is not None:
        status += f" at step {record.diverged_at_step}"
    lines = [f"{record.run_id} {status} after {record.epochs} epochs"]
    numbers = {name: value for name, value in record.metrics.items() if value is not None}
    numbers["chance"] = record.chance
    if record.coefficients is not None:
        numbers["near-zero fraction"] = record.coefficients["near_zero"]
    lines += [f"  {name:<20} {value:.4f}" for name, value in numbers.items()]
    lines += [f"  {config.settings.paths.results}/runs/{record.run_id}/record.json"]
    return "\n".join(lines)
