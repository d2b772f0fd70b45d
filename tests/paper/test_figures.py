"""Figures: any experiment has one. What they show: test_figure_curves.py, test_figure_bars.py."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest
from matplotlib.mathtext import MathTextParser
from matplotlib.text import Text

from coefdyn import paper
from coefdyn.cli import main
from coefdyn.config.plugins import options
from coefdyn.paper import experiment_of, experiments
from coefdyn.paper.report import drawable, page
from coefdyn.results.files import TableFolder
from tests.paper.worlds import fill, record, runs_of

STEM = "principle3_position"


def test_what_is_declared_has_a_grid() -> None:
    """But for timings, which `coefdyn bench` makes."""
    declared = [stem for stem, experiment in experiments().items() if not experiment.columns]
    assert set(declared) <= set(options("experiment"))


@pytest.mark.parametrize("stem", dict.fromkeys([*experiments(), *options("experiment")]))
def test_every_panel_shows_something_of_the_grid(worlds: dict[str, TableFolder], stem: str) -> None:
    """Its formulas are typeset too: a wrong one fails only when it is drawn."""
    if not worlds["right"].has(stem):
        pytest.skip("timings of a kind that the worlds do not have")
    figure = worlds["right"].draw(experiment_of(stem))
    assert all(axes.has_data() for axes in figure.axes)
    texts = {text.get_text() for text in figure.findobj(Text)}
    assert not texts & {"no runs", "no run", "no curves", "no point has one", "diverged"}
    for line in {line for text in texts for line in text.split("\n") if "$" in line}:
        MathTextParser("path").parse(line)


def test_the_same_table_gives_the_same_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(tmp_path, stems=[STEM])
    ask = [f"experiment={STEM}", "scale=smoke", f"paths.results={tmp_path}", "source=tables"]
    files = []
    for _ in range(2):
        assert main(["figure", *ask]) == 0
        picture = Path(capsys.readouterr().out.strip())
        files.append((picture.read_bytes(), picture.with_suffix(".pdf").read_bytes()))
    assert files[0] == files[1]


def test_an_experiment_that_nobody_declared_has_a_figure_and_a_place_on_the_page(
    tmp_path: Path,
) -> None:
    runs = runs_of(STEM)
    mine = experiment_of("mine")
    folder = TableFolder(tmp_path, "smoke")
    folder.write(mine, runs, {run.run_id: record(STEM, run) for run in runs})
    assert [experiment.stem for experiment in drawable(folder)] == ["mine"]
    assert all(axes.has_data() for axes in folder.draw(mine).axes)
    text = page([folder])
    assert 'id="smoke-mine"' in text
    assert "mine: accuracy by what its grid varies" in text


def test_a_figure_is_not_drawn_for_want_of_what_it_needs(tmp_path: Path) -> None:
    """Runs that all diverged have no coefficients, and so no table of their zeros."""
    stem = "principle2_2_zeros"
    folder = fill(tmp_path, stems=[stem])
    assert [experiment.stem for experiment in drawable(folder)] == [stem]
    records = {
        run.run_id: replace(record(stem, run), status="diverged", coefficients=None)
        for run in runs_of(stem)
    }
    folder.write(experiments()[stem], runs_of(stem), records)
    assert drawable(folder) == []


def test_one_file_adds_an_experiment_of_the_paper(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing else names it: no list, no test."""
    (tmp_path / "principle7.py").write_text(
        "from coefdyn.results.experiment import Experiment\n"
        "EXPERIMENTS = (Experiment('principle7_mine', 'a caption', None),)\n"
    )
    monkeypatch.setattr(paper, "__path__", [*paper.__path__, str(tmp_path)])
    experiments.cache_clear()
    try:
        assert experiments()["principle7_mine"].caption == "a caption"
    finally:
        experiments.cache_clear()
        sys.modules.pop("coefdyn.paper.principle7", None)
