"""Tables and figures on disk: <results>/tables/<scale>/ and <results>/figures/<scale>/."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from coefdyn.config.grid import PlannedRun
from coefdyn.errors import ConfigError
from coefdyn.results.experiment import Experiment, Records, Tables
from coefdyn.results.tables import (
    CURVE_COLUMNS,
    POINT_COLUMNS,
    RUN_COLUMNS,
    curve_table,
    planned_per_point,
    point_table,
    provenance,
    read_table,
    run_table,
    write_table,
)
from coefdyn.runs.archive import record_of
from coefdyn.runs.record import write_atomically

if TYPE_CHECKING:
    from matplotlib.figure import Figure


ROUNDING = 1e-5  # tables have six digits


class TableFolder:
    """The tables and figures of one scale."""

    def __init__(self, results: Path, scale: str) -> None:
        self.results, self.scale = results, scale
        self.tables, self.figures = results / "tables" / scale, results / "figures" / scale

    def path(self, name: str) -> Path:
        return self.tables / f"{name}.csv"

    def has(self, *names: str) -> bool:
        return all(self.path(name).exists() for name in names)

    def stems(self) -> list[str]:
        """The experiments that have tables here."""
        return sorted(path.stem.removesuffix("_runs") for path in self.tables.glob("*_runs.csv"))

    def write(
        self,
        experiment: Experiment,
        runs: Sequence[PlannedRun],
        records: Records,
        narrowed: Sequence[str] = (),
    ) -> None:
        """Write the tables of an experiment. `narrowed`: overrides that changed its grid."""
        stem, rows = experiment.stem, run_table(runs, records)
        points = point_table(rows, planned_per_point(runs))
        write_table(self.path(f"{stem}_runs"), rows)
        write_table(self.path(stem), points)
        write_table(self.path(experiment.curves), curve_table(rows, records))
        for name, make in experiment.more.items():
            self.path(name).unlink(missing_ok=True)
            if len(table := make(points, records)):
                write_table(self.path(name), table)
        about = provenance(records) | {"narrowed": list(narrowed)}
        write_atomically(self._sidecar(stem), json.dumps(about, indent=1) + "\n")

    def read(self, name: str, columns: Sequence[str] = ("scale",)) -> pd.DataFrame:
        """Read a table and check its columns. `columns`: those of a table without runs."""
        if self.has(f"{name}_runs"):
            columns = POINT_COLUMNS
        elif name.endswith("_runs"):
            columns = RUN_COLUMNS
        elif name.endswith("_curves"):
            columns = CURVE_COLUMNS
        table = read_table(self.path(name), columns, self.scale)
        if columns is RUN_COLUMNS:
            self._check_records(name, table)
        return table

    def _check_records(self, name: str, table: pd.DataFrame) -> None:
        """Accuracies must be those of the records, where the records are at hand."""
        for run_id, accuracy in zip(table["run_id"], table["accuracy"], strict=True):
            record = record_of(self.results / "runs" / run_id)
            recorded = record.metrics.get("test/accuracy") if record else None
            if recorded is not None and abs(recorded - accuracy) > ROUNDING:
                raise ConfigError(
                    f"the table {self.path(name)} does not fit its records: run {run_id} has the "
                    f"accuracy {accuracy} there and {recorded} in its record; make it again by "
                    "coefdyn figure"
                )

    def tables_of(self, experiment: Experiment) -> dict[str, pd.DataFrame]:
        """The tables that its figure and claims read, by name."""
        names = (
            f"{experiment.stem}_runs", experiment.curves, *experiment.more, *experiment.needs
        )  # fmt: skip
        own = {experiment.stem: self.read(experiment.stem, experiment.columns or POINT_COLUMNS)}
        return own | {name: self.read(name) for name in names if self.has(name)}

    def provenance(self, stem: str) -> dict[str, Any]:
        """Code, versions, devices and hours of a table's runs; empty if they are not known."""
        path = self._sidecar(stem)
        try:
            about: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
        except ValueError as error:
            raise ConfigError(f"{path} cannot be read; make the tables again") from error
        return about

    def narrowed(self, stem: str) -> list[str]:
        """The overrides by which its table has fewer or other runs than its experiment."""
        return list(self.provenance(stem).get("narrowed", ()))

    def draw(self, experiment: Experiment) -> "Figure":
        tables: Tables = self.tables_of(experiment)
        try:
            return experiment.draw(tables)
        except ConfigError as error:
            path = self.path(experiment.stem)
            raise ConfigError(f"the table {path} cannot be drawn: {error}") from error

    def save(self, stem: str, figure: "Figure") -> Path:
        """Save as PDF and PNG, without dates: the same table gives the same files."""
        self.figures.mkdir(parents=True, exist_ok=True)
        figure.savefig(self.figures / f"{stem}.pdf", metadata={"CreationDate": None})
        figure.savefig(self.figures / f"{stem}.png", dpi=200)
        return self.figures / f"{stem}.png"

    def write_decisions(self, stem: str, claims: dict[str, Any]) -> None:
        """Write the verdicts that `action=decide` has reached. They stay when runs are added."""
        self.tables.mkdir(parents=True, exist_ok=True)
        path = self.tables / f"{stem}_decisions.json"
        write_atomically(path, json.dumps(claims, indent=1) + "\n")

    def decisions(self) -> dict[str, Any]:
        """The verdicts that `action=decide` has reached, by claim."""
        decisions: dict[str, Any] = {}
        for path in sorted(self.tables.glob("*_decisions.json")):
            try:
                decisions |= json.loads(path.read_text())
            except ValueError as error:
                raise ConfigError(f"{path} cannot be read; decide again") from error
        return decisions

    def _sidecar(self, stem: str) -> Path:
        return self.tables / f"{stem}.json"
