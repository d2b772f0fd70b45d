"""The archive: what is kept is not trained again, and damage shows."""

import gzip
import json
import shutil
from pathlib import Path

import pandas as pd
import pytest

from coefdyn.cli import main
from coefdyn.cli.figure import run as figure
from coefdyn.errors import ConfigError
from coefdyn.results.load import load_run, load_runs
from coefdyn.runs.archive import Archive, _digest, record_of
from coefdyn.runs.record import read_record, write_record
from tests.results.made import recorded
from tests.runs.runs import folder, run_smoke, smoke

GRID = ["scale=smoke", "seed=0,1"]


def archive(results: Path, *more: str) -> int:
    return main(["sweep", *GRID, f"paths.results={results}", "action=archive", *more])


def test_what_is_archived_counts_as_done(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = (run_smoke(tmp_path, f"seed={seed}") for seed in (0, 1))
    assert archive(tmp_path) == 0
    shutil.rmtree(tmp_path / "runs")
    sweep = ["sweep", *GRID, f"paths.results={tmp_path}"]
    assert main([*sweep, "action=status"]) == 0
    assert main([*sweep, "action=run"]) == 0
    again = run_smoke(tmp_path, "seed=1")
    assert not (tmp_path / "runs").exists()  # nothing was trained
    assert again.metrics == second.metrics
    assert list(load_runs(tmp_path).index) == sorted([first.run_id, second.run_id])
    assert load_run(folder(tmp_path, first)).record.history == first.history
    capsys.readouterr()
    assert main(["show", first.run_id[:8], f"paths.results={tmp_path}", "format=json"]) == 0
    assert json.loads(capsys.readouterr().out)["run_id"] == first.run_id


def test_tables_and_figures_are_the_same_bytes_from_the_archive_alone(tmp_path: Path) -> None:
    grid = ["experiment=principle2_2_zeros", "scale=smoke", "model/readout=kernel_exp"]
    given = [*grid, f"paths.results={tmp_path}"]
    assert main(["sweep", *given, "action=run"]) == 0
    assert main(["figure", *given]) == 0
    first = {p: p.read_bytes() for p in tmp_path.glob("*/smoke/*") if p.suffix != ".json"}
    assert len(first) == 6  # runs, points, curves, zeros by step; PNG and PDF
    assert main(["sweep", *given, "action=archive"]) == 0
    for name in ("runs", "tables", "figures"):
        shutil.rmtree(tmp_path / name)
    assert main(["figure", *given]) == 0
    assert {p: p.read_bytes() for p in first} == first
    assert not (tmp_path / "runs").exists()
    table = tmp_path / "tables/smoke/principle2_2_zeros_runs.csv"
    rows = pd.read_csv(table)
    rows.assign(accuracy=rows["accuracy"] + 0.25).to_csv(table, index=False)
    ask = ["experiment=principle2_2_zeros", "scale=smoke", "source=tables"]
    with pytest.raises(ConfigError, match=r"does not fit its records: run [0-9a-f]{16} has the"):
        figure([*ask, f"paths.results={tmp_path}"])


def test_a_run_can_be_trained_again_beside_the_archive(tmp_path: Path) -> None:
    first = run_smoke(tmp_path)
    Archive(tmp_path).add([first])
    shutil.rmtree(tmp_path / "runs")
    again = run_smoke(tmp_path, "force=true")
    assert again.metrics == first.metrics
    assert (folder(tmp_path, again) / "record.json").exists()


def test_each_record_is_kept_once_and_shards_are_never_rewritten(tmp_path: Path) -> None:
    kept = Archive(tmp_path)
    assert kept.add([recorded("b" * 16, 0.5), recorded("a" * 16, 0.4)]) == 2
    (shard,) = kept.shards()
    bytes_then = shard.read_bytes()
    assert kept.add([recorded("a" * 16, 0.4), recorded("c" * 16, 0.3)]) == 1
    assert kept.add([recorded("c" * 16, 0.3)]) == 0
    assert shard.read_bytes() == bytes_then
    assert len(list(kept.shards())) == 2
    assert kept.names() == {letter * 16 for letter in "abc"}


def test_the_same_records_give_the_same_bytes_without_paths_of_a_machine(tmp_path: Path) -> None:
    record = run_smoke(tmp_path / "somewhere")
    for name in ("one", "two"):
        Archive(tmp_path / name).add([record])
    (one,), (two,) = Archive(tmp_path / "one").shards(), Archive(tmp_path / "two").shards()
    assert (one.name, one.read_bytes()) == (two.name, two.read_bytes())
    assert str(tmp_path) not in gzip.decompress(one.read_bytes()).decode()
    assert len(one.read_bytes()) < 15_000


def test_another_result_of_an_archived_run_is_refused(tmp_path: Path) -> None:
    Archive(tmp_path).add([recorded("a" * 16, 0.4)])
    with pytest.raises(ConfigError, match=r"run a{16} is in .* with other results; keep one"):
        Archive(tmp_path).add([recorded("a" * 16, 0.5)])


def test_shards_that_disagree_are_named(tmp_path: Path) -> None:
    """As when two clones archived the same run and were merged."""
    for place, accuracy in ((tmp_path, 0.4), (tmp_path / "other", 0.5)):
        Archive(place).add([recorded("a" * 16, accuracy)])
    (shard,) = Archive(tmp_path / "other").shards()
    shutil.copy(shard, tmp_path / "records")
    with pytest.raises(ConfigError, match="with different results; keep one of these shards"):
        Archive(tmp_path).read("a" * 16)


@pytest.mark.parametrize("harm", ["cut", "flip", "empty", "text"])
def test_a_damaged_shard_is_named(harm: str, tmp_path: Path) -> None:
    record = recorded("a" * 16, 0.4)
    Archive(tmp_path).add([record])
    (shard,) = Archive(tmp_path).shards()
    whole = bytearray(shard.read_bytes())
    middle = len(whole) // 2
    harmed = {"cut": whole[:middle], "empty": b"", "text": b"no archive",
              "flip": whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1:]}  # fmt: skip
    shard.write_bytes(harmed[harm])
    with pytest.raises(ConfigError, match=f"{shard.name} is damaged; restore it") as error:
        record_of(tmp_path / "runs" / ("a" * 16))
    assert "\n" not in str(error.value)
    shard.write_bytes(whole)
    found = record_of(tmp_path / "runs" / ("a" * 16))
    assert found is not None
    assert found.metrics == record.metrics


def test_a_damaged_archive_is_one_sentence_on_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_smoke(tmp_path)
    archive(tmp_path)
    shutil.rmtree(tmp_path / "runs")
    for shard in Archive(tmp_path).shards():
        shard.write_bytes(b"")
    from coefdyn.runs import archive as module

    module._lines_of.cache_clear()
    capsys.readouterr()
    assert main(["train", "scale=smoke", f"paths.results={tmp_path}"]) != 0
    said = capsys.readouterr().err.strip().splitlines()[-1]
    assert "is damaged; restore it" in said
    assert not (tmp_path / "runs").exists()


def test_records_of_another_schema_say_so(tmp_path: Path) -> None:
    made = recorded("a" * 16, 0.4)
    line = json.dumps({"schema": 1, "run_id": made.run_id})
    body = "\n".join([json.dumps([made.run_id]), line, ""]).encode()
    shards = tmp_path / "records"
    shards.mkdir()
    (shards / f"{_digest(body)}.jsonl.gz").write_bytes(gzip.compress(body))
    with pytest.raises(ConfigError, match=r"run a{16}, has schema 1, and .* reads schema 2"):
        record_of(tmp_path / "runs" / made.run_id)


def test_archive_says_what_is_missing_and_takes_another_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_smoke(tmp_path / "runs here")
    kept = tmp_path / "kept"
    assert archive(tmp_path / "runs here", f"into={kept}", "format=json") == 1
    assert json.loads(capsys.readouterr().out) == {"added": 1, "archived": 1, "missing": 1}
    assert len(Archive(kept).names()) == 1


def test_clean_removes_checkpoints_of_finished_runs_only(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record = run_smoke(tmp_path)
    unfinished = tmp_path / "runs" / smoke(tmp_path, "seed=1").run_id
    unfinished.mkdir()
    shutil.copy(folder(tmp_path, record) / "last.ckpt", unfinished)
    assert main(["sweep", *GRID, f"paths.results={tmp_path}", "action=clean"]) == 0
    assert "1 checkpoints removed" in capsys.readouterr().out
    assert not (folder(tmp_path, record) / "last.ckpt").exists()
    assert (unfinished / "last.ckpt").exists()
    assert read_record(folder(tmp_path, record) / "record.json") == record


def test_a_local_record_goes_before_the_archive(tmp_path: Path) -> None:
    Archive(tmp_path).add([recorded("a" * 16, 0.4)])
    place = tmp_path / "runs" / ("a" * 16)
    place.mkdir(parents=True)
    write_record(place / "record.json", recorded("a" * 16, 0.5))
    found = record_of(place)
    assert found is not None
    assert found.metrics["test/accuracy"] == 0.5
