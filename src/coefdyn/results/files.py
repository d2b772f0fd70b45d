"""Tables and figures on disk: <results>/tables/<scale>/ and <results>/figures/<scale>/."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from coefdyn.config.grid import PlannedRun
from coefdyn.errors import ConfigError
from coefdyn.paper.figures import STEMS, Drawing, drawing
from coefdyn.results.tables import (
    CURVE_COLUMNS,
    LENGTH_COLUMNS,
    POINT_COLUMNS,
    RUN_COLUMNS,
    ZERO_COLUMNS,
    Records,
    curve_table,
    over_seeds,
    point_table,
    provenance,
    read_table,
    run_table,
    write_table,
    zero_table,
)
from coefdyn.runs.record import write_atomically

LENGTHS, ZEROS = "principle1_throughput", "principle2_2_zeros_index"
CURVES = "_curves"  # losses over the steps, of text
ABOUT_SEEDS = ("principle5_scaling", "principle5_no_post_norm")


class Shelf:
    """The tables and figures of one scale."""

    def __init__(self, results: Path, scale: str) -> None:
        self.results, self.scale = results, scale
        self.tables, self.figures = results / "tables" / scale, results / "figures" / scale

    def path(self, name: str) -> Path:
        return self.tables / f"{name}.csv"

    def has(self, name: str) -> bool:
        return self.path(name).exists()

    def stems(self) -> list[str]:
        """Those that can be drawn."""
        return [s for s in STEMS if all(self.has(name) for name in drawing(s).needs)]

    def write(
        self, stem: str, runs: Sequence[PlannedRun], records: Records, narrowed: Sequence[str] = ()
    ) -> None:
        """The tables of an experiment, from its records. `narrowed`: by which overrides."""
        rows = run_table(runs, records)
        points = point_table(rows, runs)
        write_table(self.path(f"{stem}_runs"), rows)
        write_table(self.path(stem), points)
        if stem == "principle2_2_zeros":
            zeros = zero_table(points, records)
            self.path(ZEROS).unlink(missing_ok=True)
            if len(zeros):
                write_table(self.path(ZEROS), zeros)
        if runs[0].settings["task"]["name"] == "wikitext103":
            write_table(self.path(stem + CURVES), curve_table(runs, records, self.results))
        found = provenance(records) | {"narrowed": list(narrowed)}
        write_atomically(self._sidecar(stem), json.dumps(found, indent=1) + "\n")

    def read(self, name: str) -> pd.DataFrame:
        columns = {LENGTHS: LENGTH_COLUMNS, ZEROS: ZERO_COLUMNS}.get(name, POINT_COLUMNS)
        for ending, others in (("_runs", RUN_COLUMNS), (CURVES, CURVE_COLUMNS)):
            if name.endswith(ending):
                columns = others
        return read_table(self.path(name), columns, self.scale)

    def read_all(self) -> dict[str, pd.DataFrame]:
        """Every table that figures and claims read, by name."""
        names = dict.fromkeys(name for stem in STEMS for name in (stem, *drawing(stem).needs))
        return {name: self.view(name) for name in names if self.has(name)}

    def view(self, name: str) -> pd.DataFrame:
        """A table as figures and claims see it: seeds apart only where it is about them."""
        table = self.read(name)
        as_it_is = name in (LENGTHS, ZEROS, *ABOUT_SEEDS) or name.endswith(CURVES)
        return table if as_it_is else over_seeds(table)

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

    def draw(self, stem: str) -> tuple[Drawing, Figure]:
        how = drawing(stem)
        tables = {name: self.view(name) for name in how.needs}
        try:
            return how, how.draw(tables)
        except ConfigError as error:
            raise ConfigError(f"the table {self.path(stem)} cannot be drawn: {error}") from error

    def save(self, stem: str, figure: Figure) -> Path:
        """PDF and PNG; without dates, so that the same table gives the same file."""
        self.figures.mkdir(parents=True, exist_ok=True)
        figure.savefig(self.figures / f"{stem}.pdf", metadata={"CreationDate": None})
        figure.savefig(self.figures / f"{stem}.png", dpi=200)
        return self.figures / f"{stem}.png"

    def _sidecar(self, stem: str) -> Path:
        return self.tables / f"{stem}.json"
