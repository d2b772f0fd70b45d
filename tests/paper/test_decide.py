"""Seeds until decided, on runs that are made up in no time."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from coefdyn.cli import main
from coefdyn.cli import sweep as command
from coefdyn.config.grid import PlannedRun
from coefdyn.errors import ConfigError
from coefdyn.paper import decide
from coefdyn.paper.decide import LOOKS, Decision, Ending
from coefdyn.paper.verdicts import judge
from coefdyn.results.rounds import PILOT, point_of
from coefdyn.runs.record import write_record
from tests.paper.worlds import right
from tests.results.made import recorded

STEM = "principle4_evolution"
GRID = [f"experiment={STEM}", "scale=smoke", f"seed={PILOT}", "optimizer.lr=1e-3,2e-3,5e-3",
        "+grid.smoke.seeds=3"]  # fmt: skip


def made(run: PlannedRun, deviation: float = 0.01) -> None:
    """A structure's accuracy, and noise of its own; the rate in the middle is the best."""
    rng = random.Random(run.run_id)
    accuracy = right(STEM, run).accuracy + rng.gauss(0, deviation)
    accuracy += 0.1 * run.choices["model/evolution"].endswith("learned")
    accuracy -= 0.2 * (run.values["optimizer"]["lr"] != 2e-3)
    run.folder.mkdir(parents=True, exist_ok=True)
    found = recorded(run.run_id, accuracy, seconds={"session": 36.0})
    write_record(run.folder / "record.json", found)


def decision(results: Path) -> Decision:
    return Decision([*GRID, f"paths.results={results}"], results, "smoke")


def decided(
    results: Path, make: Callable[[PlannedRun], None] = made, budget: float | None = None
) -> tuple[Ending, list[PlannedRun]]:
    done: list[PlannedRun] = []

    def work(todo: list[PlannedRun]) -> bool:
        for run in todo:
            make(run)
            done.append(run)
        return True

    return decision(results).run(work, budget), done


def verdicts(ending: Ending) -> dict[str, tuple[str, int | None]]:
    return {name: (j.verdict, ending.looks.get(name)) for name, j in ending.verdicts.items()}


@pytest.mark.long
def test_it_ends_when_all_is_decided_and_is_right_much_earlier(tmp_path: Path) -> None:
    ending, done = decided(tmp_path)
    assert ending.words == "all claims are decided"
    assert {j.verdict for j in ending.verdicts.values()} == {"reproduced"}
    points = 16  # 8 evolutions on 2 tasks, of three pilots and 12 seeds each
    every_run = points * (3 + LOOKS[-1])
    assert len(done) <= every_run / 2
    assert ending.hours == pytest.approx(len(done) / 100)
    every = Decision([*GRID, f"paths.results={tmp_path}"], tmp_path, "smoke")
    for stem in every.grids:  # what the other seeds would have said
        most = {point_of(run): LOOKS[-1] for run in every.grids[stem].declared}
        for run in every._grown(stem, most).runs:
            made(run)
    tables = every._tables(LOOKS[-1])
    full = {name: claim.judge(tables).verdict for name, claim in every.claims.items()}
    assert full == {name: j.verdict for name, j in ending.verdicts.items()}


@pytest.mark.slow
def test_more_seeds_are_for_the_points_of_undecided_claims_only(tmp_path: Path) -> None:
    """On one task nobody can tell; the other is done after its first look."""

    def make(run: PlannedRun) -> None:
        made(run, 0.06 if run.choices["task"] == "fuzzy_recall" else 0.005)

    ending, done = decided(tmp_path, make)
    assert ending.looks["P4 structure, selective copying"] == 3
    assert ending.looks.get("P4 structure, fuzzy recall", 99) > 3
    seeds = {task: max(r.values["seed"] for r in done
                       if r.choices["task"] == task and r.values["seed"] < PILOT)
             for task in ("fuzzy_recall", "selective_copying")}  # fmt: skip
    assert seeds["fuzzy_recall"] > 2
    assert seeds["selective_copying"] == 2 or "P4 parameterization" not in ending.looks


@pytest.mark.slow
def test_killed_anywhere_it_ends_with_the_same_table(tmp_path: Path) -> None:
    class KilledError(Exception):
        pass

    def noise(run: PlannedRun) -> None:
        made(run, 0.08)

    wanted, done = decided(tmp_path / "plain", noise)
    rng, left = random.Random(0), [0]

    def fragile(run: PlannedRun) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise KilledError
        noise(run)

    # Runs have the same names wherever they lie, and so the same numbers.
    for _ in range(200):
        left[0] = rng.randint(20, 120)
        try:
            found, _ = decided(tmp_path / "killed", fragile)
            break
        except KilledError:
            continue
    assert verdicts(found) == verdicts(wanted)
    assert len(done) > 100
    for name in (STEM, f"{STEM}_runs", f"{STEM}_curves"):
        tables = [decision(tmp_path / place).folder.path(name) for place in ("plain", "killed")]
        assert tables[0].read_text() == tables[1].read_text()


@pytest.mark.slow
def test_a_budget_is_not_exceeded(tmp_path: Path) -> None:
    """A run takes a hundredth of an hour."""
    ending, done = decided(tmp_path, lambda run: made(run, 0.3), budget=1.2)
    assert len(done) <= 120
    assert "over budget=1.2" in ending.words
    assert ending.hours <= 1.2


@pytest.mark.slow
def test_a_verdict_stays_whatever_is_added(tmp_path: Path) -> None:
    ending, _ = decided(tmp_path)
    folder = decision(tmp_path).folder
    table = folder.path(f"{STEM}_runs")
    lines = table.read_text().splitlines()
    table.write_text("\n".join(line for line in lines if ",diagonal_" not in line) + "\n")
    rows = {judged.claim.name: judged.row() for judged in judge(folder)}
    for name, look in ending.looks.items():
        assert rows[name]["verdict"] == ending.verdicts[name].verdict
        assert rows[name]["statistic"].startswith(f"decided at {look} seeds: ")
    (folder.tables / f"{STEM}_decisions.json").write_text("{")
    with pytest.raises(ConfigError, match="cannot be read; decide again"):
        judge(folder)


@pytest.mark.slow
def test_on_slurm_it_submits_and_is_called_again(tmp_path: Path) -> None:
    sent: list[PlannedRun] = []

    def work(todo: list[PlannedRun]) -> bool:
        sent.extend(todo)
        return False

    ending = decision(tmp_path).run(work, None)
    assert len(sent) == 48  # pilots
    assert "48 runs are under way; the same command goes on" in ending.words
    for run in sent:
        made(run)
    sent.clear()
    decision(tmp_path).run(work, None)
    assert len(sent) == 48  # three seeds of 16 points
    assert {run.values["seed"] for run in sent} == {0, 1, 2}


@pytest.mark.slow
def test_on_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run_all(todo: list[PlannedRun], *_: object) -> None:
        for run in todo:
            made(run)

    monkeypatch.setattr(command, "run_all", run_all)
    given = ["sweep", *GRID, f"paths.results={tmp_path}", "action=decide"]
    assert main([*given, "format=json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["ended"] == "all claims are decided"
    assert said["claims"]["P4 parameterization"]["seeds"] in LOOKS
    assert main(given) == 0
    assert "all claims are decided" in capsys.readouterr().out
    for wrong, words in (
        ("budget=-1", "budget=-1"),
        ("where=moon", "choose from here, slurm"),
    ):
        assert main([*given, wrong]) == 1
        assert words in capsys.readouterr().err
    others = [part for part in given if not part.startswith(("experiment=", "+grid"))]
    assert main([*others, "experiment=architectures"]) == 1
    assert "needs experiment=<one with claims>, not architectures" in capsys.readouterr().err
    plain = [part for part in given if not part.startswith(("seed=", "+grid"))]
    assert main(plain) == 1
    assert "has no pilots at scale=smoke" in capsys.readouterr().err


def test_another_design_than_the_experiment_s_is_not_decided(tmp_path: Path) -> None:
    """Its verdicts would be kept as the experiment's own."""
    other = [*GRID, f"paths.results={tmp_path}", "reading=no_post_norm"]
    with pytest.raises(ConfigError, match="as its file has it, not with reading=no_post_norm"):
        Decision(other, tmp_path, "smoke")


@pytest.mark.parametrize("where", ["machine=slurm", "trainer=cuda", "trainer.precision=fp32"])
def test_where_and_how_runs_are_trained_is_no_other_design(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It gets as far as to look for pilots, of which this planner has none."""
    monkeypatch.setattr(decide, "Planner", lambda _: SimpleNamespace(declared=[]))
    with pytest.raises(ConfigError, match="has no pilots"):
        Decision([*GRID, where], tmp_path, "smoke")
    with pytest.raises(ConfigError, match="not with model=gla"):
        Decision([*GRID, where, "model=gla"], tmp_path, "smoke")
