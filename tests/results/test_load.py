"""Recorded runs as objects and as a table, by value."""

from pathlib import Path

import pytest

from coefdyn.errors import ConfigError
from coefdyn.results.load import flat, load_run, load_runs
from coefdyn.runs.record import Record, write_record
from tests.results.made import diverged, recorded

CONFIG = {
    "seed": 3,
    "optimizer": {"lr": 0.005, "betas": [0.9, 0.95], "name": None},
    "model": {"block": {"post_norm": "all"}, "scale": 2},
    "scale": {"name": "smoke"},
    "grid": {"seed": [0, 1]},
    "paths": {"results": "here"},
    "plugins": [],
    "logger": None,
    "force": False,
    "check": True,
    "population": 4,
}
CHOICES = {"task": "noisy_recall", "model/readout": "relu", "logger": "None"}
SETTINGS = {
    "seed": 3,
    "optimizer.lr": 0.005,
    "optimizer.betas": "[0.9, 0.95]",
    "optimizer.name": None,
    "model.block.post_norm": "all",
    "model.scale": 2,
}


def made(run_id: str, accuracy: float) -> Record:
    return recorded(run_id, accuracy, config=CONFIG, choices=CHOICES)


def test_a_row_has_everything_of_a_record_that_is_one_value() -> None:
    metrics = ("accuracy", "accuracy_macro", "accuracy_best", "loss", "perplexity",
               "perplexity_word")  # fmt: skip
    statistics = ("near_zero", "near_one", "ratio", "near_zero_raw", "near_one_raw", "ratio_raw",
                  "near_zero_relative", "entropy", "score_variance", "effective_rank",
                  "guarded_rows", "most_zeros")  # fmt: skip
    initial = ("near_zero", "near_zero_raw", "near_zero_relative", "score_variance")
    assert flat(made("a", 0.5)) == {
        "run_id": "a",
        "task": "noisy_recall",
        "readout": "relu",
        "status": "finished",
        "diverged_at_step": None,
        **{f"test/{name}": 0.5 * times for times, name in enumerate(metrics, 1)},
        "validation/perplexity": 3.5,
        "chance": 0.125,
        "order_free": 0.25,
        "ceiling": 1.0,
        **{name: 0.5 * times for times, name in enumerate(statistics, 8)},
        **{f"initial.{name}": 0.5 * times for times, name in enumerate(initial, 20)},
        "epochs": 2,
        "steps": 4,
        "parameters": 1000,
        "seconds": 90.0,
        **SETTINGS,
    }


def test_a_diverged_run_has_no_statistics() -> None:
    row = flat(diverged("a", 0.5))
    assert (row["status"], row["diverged_at_step"]) == ("diverged", 7)
    assert "near_zero" not in row
    assert "per_head" not in row


def test_runs_are_rows_by_name(tmp_path: Path) -> None:
    for name, accuracy in (("b", 0.5), ("a", 0.25)):
        (tmp_path / "runs" / name).mkdir(parents=True)
        write_record(tmp_path / "runs" / name / "record.json", made(name, accuracy))
    (tmp_path / "runs" / "unfinished").mkdir()
    runs = load_runs(tmp_path)
    assert (runs.index.name, list(runs.index)) == ("run_id", ["a", "b"])
    assert "run_id" not in runs
    assert runs["test/accuracy"].tolist() == [0.25, 0.5]
    assert runs["near_zero"].tolist() == [2.0, 4.0]
    assert {name: runs.loc["b", name] for name in SETTINGS} == SETTINGS


@pytest.mark.parametrize("path", ["", "record.json"])
def test_a_run_is_found_by_its_folder_or_its_record(tmp_path: Path, path: str) -> None:
    record = made("a", 0.5)
    write_record(tmp_path / "record.json", record)
    run = load_run(tmp_path / path, plugins=["mine"])
    assert (run.folder, run.record, run.run_id) == (tmp_path, record, "a")
    assert run.history.to_dict("list") == {"epoch": [1, 2], "step": [2, 4]}
    # The plugins that its caller trusts, not those that it names.
    assert run.config.values == {**CONFIG, "plugins": ["mine"]}
    assert repr(run) == "Run(a: None on noisy_recall, finished, accuracy 0.5000)"


def test_a_folder_without_a_record_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"has no record: no run has been finished there"):
        load_run(tmp_path)
