"""Tables: what a row says, and tables that cannot be used."""

import json
from pathlib import Path

import pandas as pd
import pytest

from coefdyn.cli.figure import figure, report
from coefdyn.config.grid import plan
from coefdyn.errors import ConfigError
from coefdyn.paper.figures import STEMS
from coefdyn.results.files import Shelf
from coefdyn.results.tables import point_table, provenance, run_table
from coefdyn.runs.run import run_one
from tests.paper.worlds import record, right, runs_of, shelf, wrong

pytestmark = pytest.mark.xdist_group("worlds")  # whose plans take long, once

STEM = "principle3_position"


def test_a_point_is_the_best_of_its_runs() -> None:
    runs = runs_of(STEM)
    records = {run.run_id: record(STEM, run, right) for run in runs}
    worst = dict(records)
    diverged = record(STEM, runs[0], right) | {"status": "diverged", "coefficients": None,
                                               "diverged_at_step": 7}  # fmt: skip
    worst[runs[0].run_id] = diverged
    rows = run_table(runs, worst)
    assert len(rows) == len(runs) == 24
    points = point_table(rows, runs)
    assert len(points) == 12
    first = points.iloc[0]
    assert (first["lr"], first["lr_at_edge"], first["runs"]) == (0.005, "largest", 2)
    assert (first["diverged"], first["missing"]) == (1, 0)
    assert first["accuracy"] == pytest.approx(0.99)
    assert first["accuracy_worst"] == pytest.approx(0.96)
    assert first["run_id"] == runs[1].run_id


def test_seeds_are_averaged_where_they_are_not_the_question(tmp_path: Path) -> None:
    runs = plan([f"experiment={STEM}", "scale=smoke", "seed=0,1"])
    made = Shelf(tmp_path, "smoke")
    records = {r.run_id: record(STEM, r, right) for r in runs}
    records[runs[0].run_id]["metrics"]["test/accuracy"] = 0.59
    made.write(STEM, runs, records)
    assert len(made.read(STEM)) == 24
    seen = made.view(STEM)
    assert len(seen) == 12
    first = seen.iloc[0]
    assert (first["accuracy"], first["runs"]) == (pytest.approx((0.59 + 0.99) / 2), 2)
    made.draw(STEM)
    assert report([f"paths.results={tmp_path}", "format=json"]) == 0


def test_missing_runs_are_counted_and_not_filled() -> None:
    runs = runs_of(STEM)
    records = {r.run_id: record(STEM, r, right) if i else None for i, r in enumerate(runs)}
    rows = run_table(runs, records)
    assert len(rows) == 23
    assert point_table(rows, runs)["missing"].tolist() == [1] + [0] * 11
    found = provenance(records)
    assert (found["runs"], found["missing"], found["hours"]) == (23, 1, 23.0)


def test_tables_from_real_runs_can_be_drawn(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The whole way: two runs, their tables, their figure, the page."""
    ask = [
        "experiment=principle2_2_zeros",
        "scale=smoke",
        f"paths.results={tmp_path}",
        "task=fuzzy_recall",
    ]
    with pytest.raises(
        ConfigError, match=f"2 of 2 runs of .* are not recorded.* paths.results={tmp_path}"
    ):
        figure(ask)
    for run in plan(ask):
        run_one(run.config)
    assert figure(ask) == 0
    picture = Path(capsys.readouterr().out.strip())
    assert picture.stat().st_size > 5000
    assert picture.with_suffix(".pdf").exists()
    table = tmp_path / "tables" / "smoke" / "principle2_2_zeros.csv"
    before = table.read_bytes()
    assert figure([*ask, f"paths.data={tmp_path}"]) == 0
    assert table.read_bytes() == before
    # Which runs, not where they lie.
    assert json.loads(table.with_suffix(".json").read_text())["narrowed"] == ["task=fuzzy_recall"]
    # A table of the whole experiment is not lost to one of a part.
    table.with_suffix(".json").write_text("{}")
    with pytest.raises(ConfigError, match="would be lost to one with task=fuzzy_recall; delete it"):
        figure(ask)
    assert table.read_bytes() == before
    assert report([f"paths.results={tmp_path}"]) == 0


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Every figure of two worlds."""
    places = tmp_path_factory.mktemp("right"), tmp_path_factory.mktemp("wrong")
    for place, world in zip(places, (right, wrong), strict=True):
        shelf(place, world)
        assert (
            figure(["experiment=all", "scale=smoke", f"paths.results={place}", "source=tables"])
            == 0
        )
    return places


@pytest.mark.parametrize("stem", STEMS)
def test_figures_are_not_blank_and_follow_their_tables(drawn: tuple[Path, Path], stem: str) -> None:
    from matplotlib.image import imread

    one, other = (imread(place / "figures" / "smoke" / f"{stem}.png") for place in drawn)
    assert (one[..., :3].min(axis=-1) < 0.5).mean() > 0.002
    assert one.shape != other.shape or stem == "architectures" or (one != other).any()


def test_the_same_table_gives_the_same_file(drawn: tuple[Path, Path]) -> None:
    path = drawn[0] / "figures" / "smoke" / f"{STEM}.pdf"
    before = path.read_bytes()
    figure([f"experiment={STEM}", "scale=smoke", f"paths.results={drawn[0]}", "source=tables"])
    assert path.read_bytes() == before


def _spoil(table: pd.DataFrame, how: str) -> pd.DataFrame:
    if how == "columns":
        return table.drop(columns=["near_zero", "lr"])
    if how == "rows":
        return table.head(0)
    if how == "scale":
        return table.assign(scale="paper")
    if how == "twice":
        return pd.concat([table, table.assign(n_heads=8)])
    if how == "words":
        return table.assign(near_zero="few")
    return table.assign(accuracy=float("nan"))


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("columns", "lacks the columns near_zero, lr"),
        ("rows", "has no rows"),
        ("scale", "is of scale=paper, not of scale=smoke"),
        ("numbers", "has accuracy=nan, which is no number"),
        ("words", "has near_zero=few, which is no number"),
        ("twice", "several points with readout=exp where the figure shows one|_runs disagree"),
        ("text", "cannot be read"),
    ],
)
def test_a_table_that_cannot_be_used_is_named(tmp_path: Path, how: str, words: str) -> None:
    made = Shelf(tmp_path, "smoke")
    made.write(STEM, runs_of(STEM), {r.run_id: record(STEM, r, right) for r in runs_of(STEM)})
    path = made.path(STEM)
    if how == "text":
        path.write_text('a,b\n"1')
    else:
        _spoil(pd.read_csv(path, keep_default_na=False), how).to_csv(path, index=False)
    for command in (
        lambda: figure(
            [f"experiment={STEM}", "scale=smoke", f"paths.results={tmp_path}", "source=tables"]
        ),
        lambda: report([f"paths.results={tmp_path}"]),
    ):
        with pytest.raises(ConfigError, match=words) as error:
            command()
        assert str(path) in str(error.value)
        assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["experiment=principle9"], "experiment=principle9 is not known; choose from"),
        (
            ["experiment=all", "scale=huge"],
            "scale=huge is not known; choose from lite, paper, smoke",
        ),
        (["experiment=all", "source=web"], "source=web is not known; choose from auto, records"),
        ([], "experiment= is not known"),
        (["experiment=all"], "there are no tables in"),
        (["experiment=principle3_position", "source=tables"], "there is no table"),
        (["experiment=all", "source=tables", "results=x"], "results=x would change nothing"),
    ],
)
def test_bad_arguments_get_one_sentence(tmp_path: Path, arguments: list[str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        figure([*arguments, f"paths.results={tmp_path}"])


def test_a_report_of_nothing_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"there are no tables in .*scripts/figure.py makes them"):
        report([f"paths.results={tmp_path}"])
    for paths in ("paths=here", "paths=null", "paths.results=3"):
        with pytest.raises(ConfigError, match=r"paths.results=.* must be a directory"):
            report([paths])
    with pytest.raises(ConfigError, match="format=pdf is not known"):
        report([f"paths.results={tmp_path}", "format=pdf"])
