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
        """The tables of an experiment, from its records. `narrowed`: by which overrides."""
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
        """A table, checked by what it is; `columns` are those of one that has no runs."""
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
        """What there is of records of these runs must be what the table says."""
        for run_id, accuracy in zip(table["run_id"], table["accuracy"], strict=True):
            record = record_of(self.results / "runs" / run_id)
            found = record.metrics.get("test/accuracy") if record else None
            if found is not None and abs(found - accuracy) > ROUNDING:
                raise ConfigError(
                    f"the table {self.path(name)} does not fit its records: run {run_id} has the "
                    f"accuracy {accuracy} there and {found} in its record; make it again by "
                    "coefdyn figure"
                )

    def tables_of(self, experiment: Experiment) -> dict[str, pd.DataFrame]:
        """What its figure and claims read, by name."""
        others = (
            f"{experiment.stem}_runs", experiment.curves, *experiment.more, *experiment.needs
        )  # fmt: skip
        own = {experiment.stem: self.read(experiment.stem, experiment.columns or POINT_COLUMNS)}
        return own | {name: self.read(name) for name in others if self.has(name)}

    def provenance(self, stem: str) -> dict[str, Any]:
        path = self._sidecar(stem)
        try:
            found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
        except ValueError as error:
            raise ConfigError(f"{path} cannot be read; make the tables again") from error
        return found

    def narrowed(self, stem: str) -> list[str]:
        """By which overrides its table has fewer runs, or other ones, than its experiment."""
        return list(self.provenance(stem).get("narrowed", ()))

    def draw(self, experiment: Experiment) -> "Figure":
        tables: Tables = self.tables_of(experiment)
        try:
            return experiment.draw(tables)
        except ConfigError as error:
            path = self.path(experiment.stem)
            raise ConfigError(f"the table {path} cannot be drawn: {error}") from error

    def save(self, stem: str, figure: "Figure") -> Path:
        """PDF and PNG; without dates, so that the same table gives the same file."""
        self.figures.mkdir(parents=True, exist_ok=True)
        figure.savefig(self.figures / f"{stem}.pdf", metadata={"CreationDate": None})
        figure.savefig(self.figures / f"{stem}.png", dpi=200)
        return self.figures / f"{stem}.png"

    def write_decisions(self, stem: str, claims: dict[str, Any]) -> None:
        """Verdicts that `action=decide` has reached: they stay, whatever runs are added."""
        self.tables.mkdir(parents=True, exist_ok=True)
        path = self.tables / f"{stem}_decisions.json"
        write_atomically(path, json.dumps(claims, indent=1) + "\n")

    def decisions(self) -> dict[str, Any]:
        """By claim."""
        found: dict[str, Any] = {}
        for path in sorted(self.tables.glob("*_decisions.json")):
            try:
                found |= json.loads(path.read_text())
            except ValueError as error:
                raise ConfigError(f"{path} cannot be read; decide again") from error
        return found

    def _sidecar(self, stem: str) -> Path:
        return self.tables / f"{stem}.json"
