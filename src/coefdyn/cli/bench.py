"""The command line of scripts/benchmark.py."""

import importlib
import json
import sys
import warnings
from collections.abc import Sequence

import torch
from rich.console import Console
from rich.table import Table

from coefdyn.allocator import keep_freed_memory
from coefdyn.benchmarks.measure import Result
from coefdyn.config.compose import compose
from coefdyn.errors import ConfigError

SUITES = (
    "mixer",
    "tasks",
    "training",
    "sweep",
    "lengths",
    "population",
    "kernels",
)  # modules of coefdyn.benchmarks


def main(arguments: Sequence[str]) -> int:
    """Exit code: 0 if every bar is kept, 1 if not."""
    config = compose(arguments, "benchmark").values
    if config.suite not in SUITES or config.format not in ("table", "json"):
        raise ConfigError(
            f"suite={config.suite} format={config.format} is not known; "
            f"choose suite from {', '.join(SUITES)} and format from table, json"
        )
    if not all(type(n) is int and n > 0 for n in (config.threads, config.repeats)):
        raise ConfigError("threads and repeats must be whole numbers of at least 1")
    warnings.filterwarnings("ignore", module=r"lightning\.")
    keep_freed_memory()
    torch.set_num_threads(config.threads)
    torch.manual_seed(0)
    table = Table("case", "value", "baseline", "ratio", "bar", "", title=f"suite={config.suite}")
    all_ok = True
    suite = importlib.import_module(f"coefdyn.benchmarks.{config.suite}")
    for result in suite.run(config.repeats):
        all_ok = all_ok and result.ok
        if config.format == "json":
            print(json.dumps(result.as_dict()), flush=True)
        table.add_row(*cells(result))
        print(result.case, f"{result.ratio:.2f}", file=sys.stderr, flush=True)
    if config.format == "table":
        Console().print(table)
    return 0 if all_ok else 1


def cells(result: Result) -> list[str]:
    ratio = f"{result.ratio:.2f}"
    if result.interval is not None:
        ratio += " ({:.2f} to {:.2f})".format(*result.interval)
    values = [f"{x:.3g} {result.unit}" for x in (result.value, result.baseline)]
    return [result.case, *values, ratio, f"{result.bar:g}", "ok" if result.ok else "missed"]
