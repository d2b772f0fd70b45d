"""suite=tasks: how long it takes to generate train and test data of each task at paper scale."""

from collections.abc import Iterator
from functools import partial

from coefdyn.benchmarks.measure import Result, interleaved_medians, result
from coefdyn.config.build import build_task
from coefdyn.config.compose import compose
from coefdyn.config.plugins import options
from coefdyn.tasks.task import Task

SUITE = "tasks"
VARIANTS = {"brackets": ["task=modular_arithmetic", "task.brackets=true"]}
BARS = {"fuzzy_recall": 2.0}  # seconds; the others 0.5


def run(repeats: int) -> Iterator[Result]:
    overrides = {name: [f"task={name}"] for name in options("task")} | VARIANTS
    for name, choice in overrides.items():
        task = build_task(compose([*choice, "scale=paper"]))
        if task.language:  # its text is prepared once, by a script
            continue
        run = partial(_data, task)
        seconds = interleaved_medians({name: run}, max(3, repeats // 3))[name] / 1e3
        bar = BARS.get(name, 0.5)
        yield result(SUITE, f"{name}, data at scale=paper, against {bar:g} s", seconds, "s", bar, 1)


def _data(task: Task) -> object:
    return task.generate("train", 0), task.generate("test", 0)
