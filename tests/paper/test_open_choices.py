"""Which reading changes which verdict: from made-up records of several readings to one table."""

from pathlib import Path

import pytest

from coefdyn.config.compose import compose
from coefdyn.config.multirun import sweep_points
from coefdyn.config.plugins import options
from coefdyn.errors import ConfigError
from coefdyn.paper import experiment_of
from coefdyn.paper.ours.open_choices import RAW, STEM, under, verdicts
from coefdyn.results.files import TableFolder
from tests.paper.worlds import Outcome, PlannedRun, record, right, runs_of, wrong

pytestmark = pytest.mark.long

READINGS = ("as_built", "constant_rate", "no_post_norm")


def world(stem: str, run: PlannedRun) -> Outcome:
    return (wrong if run.choices["reading"] == "constant_rate" else right)(stem, run)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> TableFolder:
    made = TableFolder(tmp_path_factory.mktemp("readings"), "smoke")
    runs = [run for run in runs_of(STEM) if run.choices["reading"] in (*READINGS, "added_eps")]
    made.write(experiment_of(STEM), runs, {run.run_id: record(STEM, run, world) for run in runs})
    return made


def test_a_verdict_under_each_reading(folder: TableFolder) -> None:
    found = verdicts(folder.tables_of(experiment_of(STEM)))
    table = found.pivot_table("verdict", "claim", "reading", "first")
    assert set(table.columns) == {*READINGS, "added_eps", RAW}
    assert len(table) == 7
    decided = table.drop(index=["P6 power", "P2 memorization, ratio to accuracy"])
    for reading in ("as_built", "no_post_norm", "added_eps"):
        assert set(decided[reading]) == {"reproduced"}
    assert set(decided["constant_rate"]) == {"not reproduced"}
    power = table.loc["P6 power"]  # one function, but for the norm that hides the difference
    assert power["as_built"] == power["constant_rate"] == "invariant by construction"
    assert power["no_post_norm"] == "reproduced"


def test_what_a_reading_does_not_touch_is_as_built(folder: TableFolder) -> None:
    tables = folder.tables_of(experiment_of(STEM))
    rows = under(tables, "added_eps", "principle6_normalization")["principle6_normalization"]
    by = rows.groupby("normalization")["reading"].unique().map(list).to_dict()
    assert by == {"one": ["as_built"], "power": ["as_built"], "row_sum": ["added_eps"]}


def test_raw_coefficients_are_a_reading_without_runs(folder: TableFolder) -> None:
    tables = dict(folder.tables_of(experiment_of(STEM)))
    runs = tables[f"{STEM}_runs"]
    tables[f"{STEM}_runs"] = runs.assign(near_zero_raw=1 - runs["near_zero"])
    raw = under(tables, RAW, "principle2_readout")["principle2_readout_runs"]
    built = under(tables, "as_built", "principle2_readout")["principle2_readout_runs"]
    assert (raw["near_zero"] == 1 - built["near_zero"]).all()


def test_the_figure_frames_what_changed(folder: TableFolder) -> None:
    figure = folder.draw(experiment_of(STEM))
    (axes,) = figure.axes
    framed = [patch for patch in axes.patches if patch.get_edgecolor()[3] > 0]
    assert len(framed) == 5 + 1  # five claims under constant_rate, P6 power without the norm
    assert len(axes.patches) == 7 * 5


def test_a_table_of_one_reading_is_refused(tmp_path: Path) -> None:
    made = TableFolder(tmp_path, "smoke")
    runs = [run for run in runs_of(STEM) if run.choices["reading"] == "as_built"]
    made.write(experiment_of(STEM), runs, {run.run_id: record(STEM, run) for run in runs})
    with pytest.raises(ConfigError, match="has one reading, or one experiment, and compares"):
        made.draw(experiment_of(STEM))


def test_every_reading_is_tried_and_the_first_changes_nothing() -> None:
    points = [
        point
        for name, scale in ((STEM, "smoke"), ("mad_switches", "lite"))
        for point in sweep_points([f"experiment={name}", f"scale={scale}"])
    ]
    tried = {part.partition("=")[2] for point in points for part in point if "reading=" in part}
    assert sorted(tried) == options("reading")
    plain = compose(["scale=smoke"]).run_id
    for name in options("reading"):
        assert (compose(["scale=smoke", f"reading={name}"]).run_id == plain) == (name == "as_built")
