"""Tables on disk: what is written, what is read back, and tables that cannot be used."""

import json
import math
import re
import shutil
from pathlib import Path

import pandas as pd
import pytest

from coefdyn.cli import main
from coefdyn.config.grid import plan
from coefdyn.errors import ConfigError
from coefdyn.paper import experiment_of
from coefdyn.paper.principle1 import COLUMNS
from coefdyn.results.files import TableFolder
from coefdyn.results.tables import read_table, write_table
from coefdyn.runs.run import run_one
from tests.paper.worlds import fill, lengths
from tests.results.made import planned, recorded

STEM = "principle3_position"


def test_numbers_are_written_with_six_digits(tmp_path: Path) -> None:
    values = [1 / 3, 1234567.0, 5e-5, 2.0]
    write_table(tmp_path / "new" / "a.csv", pd.DataFrame({"scale": "smoke", "x": values}))
    text = (tmp_path / "new" / "a.csv").read_bytes()
    assert text == b"scale,x\nsmoke,0.333333\nsmoke,1.23457e+06\nsmoke,5e-05\nsmoke,2\n"
    table = read_table(tmp_path / "new" / "a.csv", ["scale", "x"], "smoke")
    assert table["x"].tolist() == [0.333333, 1234570, 5e-5, 2]


def test_words_stay_words_and_a_blank_stays_blank(tmp_path: Path) -> None:
    """Names of choices such as none and null are not blanks."""
    written = pd.DataFrame({"scale": "smoke", "position": ["none", "null", "NA"],
                            "near_zero": [0.5, None, -0.5]})  # fmt: skip
    write_table(tmp_path / "a.csv", written)
    table = read_table(tmp_path / "a.csv", list(written), "smoke")
    assert table["position"].tolist() == ["none", "null", "NA"]
    assert table["near_zero"].isna().tolist() == [False, True, False]


@pytest.mark.parametrize("column", ["length", "milliseconds"])
@pytest.mark.parametrize("value", [1e-6, 0.0, -1.0, math.nan])
def test_lengths_and_times_are_positive(tmp_path: Path, column: str, value: float) -> None:
    table = lengths({"linear": 1.0}).astype({column: float})
    table.loc[2, column] = value
    write_table(tmp_path / "a.csv", table)
    if value > 0:
        read = read_table(tmp_path / "a.csv", COLUMNS, "smoke")
        assert read[column][2] == value
    else:
        with pytest.raises(ConfigError, match=f"has {column}=.*, which is no positive number"):
            read_table(tmp_path / "a.csv", COLUMNS, "smoke")


def test_a_folder_has_the_tables_of_an_experiment_and_says_whence(tmp_path: Path) -> None:
    folder = TableFolder(tmp_path, "smoke")
    runs = [planned("a", lr=1e-3), planned("b", lr=2e-3)]
    records = {"a": recorded("a", 0.25), "b": recorded("b", 0.5)}
    assert not folder.has("mine")
    assert (folder.stems(), folder.provenance("mine"), folder.narrowed("mine")) == ([], {}, [])
    folder.write(experiment_of("mine"), runs, records, narrowed=["seed=1"])
    assert folder.stems() == ["mine"]
    assert folder.has("mine", "mine_runs", "mine_curves")
    assert not folder.has("mine", "other")
    assert folder.read("mine")["accuracy"].tolist() == [0.5]
    assert folder.read("mine_runs")["accuracy"].tolist() == [0.25, 0.5]
    assert folder.read("mine_curves")["step"].tolist() == [2, 4]
    assert set(folder.tables_of(experiment_of("mine"))) == {"mine", "mine_curves", "mine_runs"}
    assert (folder.narrowed("mine"), folder.provenance("mine")["hours"]) == (["seed=1"], 0.05)
    folder.path("mine").with_suffix(".json").write_text("{")
    with pytest.raises(ConfigError, match=r"mine\.json cannot be read; make the tables again"):
        folder.provenance("mine")


@pytest.mark.parametrize("name", ["mine", "mine_runs", "mine_curves"])
def test_a_table_is_checked_by_what_it_is(tmp_path: Path, name: str) -> None:
    folder = TableFolder(tmp_path, "smoke")
    folder.write(experiment_of("mine"), [planned("a")], {"a": recorded("a", 0.25)})
    lacking = {"mine": "seeds", "mine_runs": "status", "mine_curves": "step"}[name]
    write_table(folder.path(name), folder.read(name).drop(columns=lacking))
    with pytest.raises(ConfigError, match=f"{name}.csv lacks the columns {lacking}; make it again"):
        folder.read(name)


@pytest.mark.long
def test_tables_from_real_runs_can_be_drawn(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The whole way: two runs, their tables, their figure, the page."""
    place = f"paths.results={tmp_path}"
    ask = ["experiment=principle2_2_zeros", "scale=smoke", place, "task=fuzzy_recall"]
    assert main(["figure", *ask]) == 1
    assert re.search(f"2 of 2 runs of .* are not recorded.* {place}", capsys.readouterr().err)
    for run in plan(ask):
        run_one(run.config)
    capsys.readouterr()
    assert main(["figure", *ask]) == 0
    picture = Path(capsys.readouterr().out.strip())
    assert picture.stat().st_size > 5000
    assert picture.with_suffix(".pdf").exists()
    table = tmp_path / "tables" / "smoke" / "principle2_2_zeros.csv"
    before = table.read_bytes()
    assert main(["figure", *ask, f"paths.data={tmp_path}"]) == 0
    assert table.read_bytes() == before
    # Which runs, not where they lie.
    assert json.loads(table.with_suffix(".json").read_text())["narrowed"] == ["task=fuzzy_recall"]
    # A table of the whole experiment is not lost to one of a part.
    table.with_suffix(".json").write_text("{}")
    assert main(["figure", *ask]) == 1
    lost = "would be lost to one with task=fuzzy_recall; delete it"
    assert lost in capsys.readouterr().err
    assert table.read_bytes() == before
    assert main(["report", place]) == 0


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


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fill(tmp_path_factory.mktemp("good"), stems=[STEM]).results


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("columns", "lacks the columns near_zero, lr"),
        ("rows", "has no rows"),
        ("scale", "is of scale=paper, not of scale=smoke"),
        ("numbers", "has accuracy=nan, which is no number"),
        ("words", "has near_zero=few, which is no number"),
        ("twice", "several points with readout=exp where the figure shows one"),
        ("text", "cannot be read"),
    ],
)
def test_a_table_that_cannot_be_used_is_named(
    good: Path, tmp_path: Path, how: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(good / "tables", tmp_path / "tables")
    path = TableFolder(tmp_path, "smoke").path(STEM)
    if how == "text":
        path.write_text('a,b\n"1')
    else:
        _spoil(pd.read_csv(path, keep_default_na=False), how).to_csv(path, index=False)
    place = f"paths.results={tmp_path}"
    for command in (
        ["figure", f"experiment={STEM}", "scale=smoke", place, "source=tables"],
        ["report", place],
    ):
        assert main(command) == 1
        message = capsys.readouterr().err
        assert words in message
        assert str(path) in message
        assert message.startswith("error: ")
        assert message.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("figure experiment=principle9", "experiment=principle9 is not known; choose from"),
        (
            "figure experiment=all scale=huge",
            "scale=huge is not known; choose from lite, paper, smoke",
        ),
        ("figure experiment=all source=web", "source=web is not known; choose from auto, records"),
        ("figure", "figure needs experiment=<name>"),
        ("figure experiment=all", "there are no tables in"),
        (f"figure experiment={STEM} source=tables", "there is no table"),
        ("figure experiment=all source=tables results=x", "results=x would change nothing"),
        ("report", "coefdyn figure makes them"),
        ("report paths=here", "paths=here must be a section"),
        ("report paths=null", "paths=None must be a section"),
        ("report paths.results=3", "there are no tables in 3/tables"),
        ("report format=pdf", "format=pdf is not known"),
    ],
)
def test_bad_arguments_get_one_sentence(
    tmp_path: Path, arguments: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    place = [] if "paths" in arguments else [f"paths.results={tmp_path}"]
    assert main([*arguments.split(), *place]) == 1
    message = capsys.readouterr().err
    assert words in message
    assert message.startswith("error: ")
    assert message.count("\n") == 1
