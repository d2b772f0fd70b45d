"""What an experiment adds to its grid: its figure, its own tables and its claims."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pandas as pd

from coefdyn.results.claim import Claim
from coefdyn.runs.record import Record

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Tables = Mapping[str, pd.DataFrame]  # by name
Records = Mapping[str, Record | None]  # by run_id; None where there is none
MakeTable = Callable[[pd.DataFrame, Records], pd.DataFrame]  # from points and records


@dataclass(frozen=True)
class Experiment:
    """`stem` names the file of conf/experiment, the tables and the figure.

    `needs` are tables of other experiments that the figure reads besides its own; `more` are tables
    of its own besides runs, points and curves. `columns`: those of a table that a benchmark writes,
    where there are no runs.
    """

    stem: str
    caption: str
    draw: "Callable[[Tables], Figure]"
    needs: tuple[str, ...] = ()
    more: Mapping[str, MakeTable] = field(default_factory=dict)
    claims: tuple[Claim, ...] = ()
    columns: tuple[str, ...] = ()

    @property
    def curves(self) -> str:
        return f"{self.stem}_curves"
