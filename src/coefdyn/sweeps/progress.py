"""The display of a running sweep: a live table, or lines where there is no terminal."""

import contextlib
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence

from rich.console import Console, Group
from rich.live import Live
from rich.padding import Padding
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from coefdyn.config.grid import PlannedRun, differences
from coefdyn.sweeps.state import epochs
from coefdyn.sweeps.worker import Outcome

REFRESH = 1.0  # seconds between updates


class Progress:
    """Shows the progress of the runs `todo` on stderr, because stdout is for results."""

    def __init__(
        self, todo: Sequence[PlannedRun], jobs: int, console: Console | None = None
    ) -> None:
        self.console = console or Console(stderr=True)
        self.total, self.jobs = len(todo), jobs
        self.left = [_kind(run) for run in todo]
        self.points = differences(todo)
        self.counts = {"done": 0, "diverged": 0, "failed": 0}
        self.seconds: dict[str, list[float]] = defaultdict(list)
        self.last_failure = ""
        self.started = self.shown = time.monotonic()
        self.live = Live(console=self.console, auto_refresh=False, transient=True)

    def __enter__(self) -> "Progress":
        if self.console.is_terminal:
            with contextlib.suppress(OSError):
                self.live.start()
        return self

    def __exit__(self, *error: object) -> None:
        with contextlib.suppress(OSError):
            self.live.stop()

    def finished(self, run: PlannedRun, outcome: Outcome, seconds: float) -> None:
        """Count a run that has ended, and print a line about it."""
        self.counts[outcome.end] += 1
        self.left.remove(_kind(run))
        if outcome.end != "failed":
            self.seconds[_kind(run)].append(seconds)
        else:
            self.last_failure = f"{run.run_id} failed: {outcome.text}"
        number = sum(self.counts.values())
        line = f"{number}/{self.total} {run.run_id} {outcome.text}, {seconds:.0f} s: "
        text = line + self.points[run.run_id]
        text += "" if self.live.is_started else self._eta()  # the table shows it
        with contextlib.suppress(OSError):  # a full disk must not stop the sweep
            self.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def show(self, busy: Mapping[int, tuple[Sequence[PlannedRun], float]]) -> None:
        """Update the table. `busy` has each worker's runs and when it began them."""
        if not self.live.is_started or time.monotonic() - self.shown < REFRESH:
            return
        self.shown = time.monotonic()
        table = Table("worker", "run", "point", "epoch", "time", expand=True)
        for number, (share, since) in sorted(busy.items()):
            run = share[0]
            name = run.run_id + (f" and {len(share) - 1} more" if len(share) > 1 else "")
            epoch = f"{epochs(run.folder)}/{run.values['trainer']['max_epochs']}"
            spent = _duration(self.shown - since)
            cells = (str(number), name, self.points[run.run_id], epoch, spent)
            table.add_row(*map(Text, cells))
        number = sum(self.counts.values())
        counts = ", ".join(f"{count} {name}" for name, count in self.counts.items())
        elapsed = _duration(self.shown - self.started)
        line = Text(f"{number} of {self.total}: {counts}; {elapsed} gone{self._eta()}")
        failure = [Text(self.last_failure, style="red")] if self.last_failure else []
        bar = Padding(ProgressBar(total=self.total, completed=number), 0)  # adds an end of line
        with contextlib.suppress(OSError):
            self.live.update(Group(table, bar, line, *failure), refresh=True)

    def _eta(self) -> str:
        """The estimated time left: each run takes the mean of its task, or of all runs so far."""
        known = [second for kind in self.seconds.values() for second in kind]
        if not known or not self.left:
            return ""
        mean = {kind: sum(times) / len(times) for kind, times in self.seconds.items()}
        seconds = sum(mean.get(kind, sum(known) / len(known)) for kind in self.left)
        return f", about {_duration(seconds / min(self.jobs, len(self.left)))} left"


def _kind(run: PlannedRun) -> str:
    return str(run.values["task"]["name"])


def _duration(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}"
