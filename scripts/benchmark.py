"""Measure speed and memory against their bars: python scripts/benchmark.py suite=mixer"""

import json
import sys

import torch
from rich.console import Console
from rich.table import Table

from coefdyn.allocator import keep_freed_memory
from coefdyn.benchmarks import mixer
from coefdyn.errors import ConfigError
from coefdyn.training.build import compose

SUITES = {"mixer": mixer.run}


def main() -> int:
    config = compose(sys.argv[1:], "benchmark").values
    if config.suite not in SUITES or config.format not in ("table", "json"):
        raise ConfigError(
            f"suite={config.suite} format={config.format} is not known; "
            f"choose suite from {', '.join(SUITES)} and format from table, json"
        )
    if not all(type(n) is int and n > 0 for n in (config.threads, config.repeats)):
        raise ConfigError("threads and repeats must be whole numbers of at least 1")
    keep_freed_memory()
    torch.set_num_threads(config.threads)
    torch.manual_seed(0)
    table = Table("case", "value", "baseline", "ratio", "bar", "", title=f"suite={config.suite}")
    all_ok = True
    for result in SUITES[config.suite](config.repeats):
        all_ok = all_ok and result.ok
        if config.format == "json":
            print(json.dumps(result.as_dict()), flush=True)
        values = (f"{x:.1f} {result.unit}" for x in (result.value, result.baseline))
        ok = "ok" if result.ok else "[red]missed[/red]"
        table.add_row(result.case, *values, f"{result.ratio:.2f}", f"{result.bar:g}", ok)
        print(result.case, f"{result.ratio:.2f}", file=sys.stderr, flush=True)
    if config.format == "table":
        Console().print(table)
    return 0 if all_ok else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except ConfigError as error:
        sys.exit(f"error: {error}")
