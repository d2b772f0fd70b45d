"""`coefdyn bench`: measures speed and memory, and compares them with their bars."""

import importlib
import json
import pkgutil
import sys
import warnings
from collections.abc import Sequence

import torch
from rich.console import Console
from rich.table import Table

from coefdyn import benchmarks
from coefdyn.allocator import keep_freed_memory
from coefdyn.benchmarks.measure import Result
from coefdyn.cli.keys import choose, only_keys
from coefdyn.config.schema import Benchmark

SUITES = [module.name for module in pkgutil.iter_modules(benchmarks.__path__)]
SUITES.remove("measure")


def run(arguments: Sequence[str]) -> int:
    """Exit code: 0 if every case is within its bar, 1 if not."""
    keys = only_keys(Benchmark, "benchmark", arguments)
    choose("suite", keys.suite, SUITES)
    warnings.filterwarnings("ignore", module=r"lightning\.")
    keep_freed_memory()
    torch.set_num_threads(keys.threads)
    torch.manual_seed(0)
    table = Table("case", "value", "baseline", "ratio", "bar", "", title=f"suite={keys.suite}")
    all_ok = True
    suite = importlib.import_module(f"coefdyn.benchmarks.{keys.suite}")
    for result in suite.run(keys.repeats):
        all_ok = all_ok and result.ok
        if keys.format == "json":
            print(json.dumps(result.as_dict()), flush=True)
        table.add_row(*cells(result))
        print(result.case, f"{result.ratio:.2f}", file=sys.stderr, flush=True)
    if keys.format == "table":
        Console().print(table)
    return 0 if all_ok else 1


def cells(result: Result) -> list[str]:
    ratio = f"{result.ratio:.2f}"
    if result.interval is not None:
        ratio += " ({:.2f} to {:.2f})".format(*result.interval)
    values = [f"{x:.3g} {result.unit}" for x in (result.value, result.baseline)]
    return [result.case, *values, ratio, f"{result.bar:g}", "ok" if result.ok else "missed"]
