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
Records = Mapping[str, Record | None]  # by run_id; None if not recorded
MakeTable = Callable[[pd.DataFrame, Records], pd.DataFrame]  # from points and records


@dataclass(frozen=True)
class Experiment:
    """A figure, with the tables it reads and the claims it illustrates.

    `stem` names the file of conf/experiment, the tables and the figure. `needs` are tables of other
    experiments that the figure reads. `more` are tables of its own besides runs, points and curves.
    `columns` are those of a table that a benchmark writes, for an experiment without runs.
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
