"""Tests after training: at other lengths, and by the gap between a question and its key."""

from pathlib import Path

import numpy as np
import pytest
import torch

from coefdyn.config.build import build_task
from coefdyn.config.compose import compose
from coefdyn.errors import ConfigError
from coefdyn.results.load import load_run
from coefdyn.runs.final_tests import final_tests
from coefdyn.runs.population.training import train_population
from coefdyn.runs.run import run_one
from coefdyn.runs.setup import set_up
from coefdyn.tasks.task import IGNORE, Examples
from tests.runs.populations import records, small
from tests.runs.runs import folder, history, run_smoke, smoke

LENGTHS = "task.test_lengths=[8,16,40]"
ROPE = "model=rope"  # no learned positions


def accuracy(model: torch.nn.Module, examples: Examples) -> float:
    with torch.no_grad():
        guess = model(torch.from_numpy(examples.inputs)).argmax(-1).numpy()
    scored = examples.targets != IGNORE
    return float((guess == examples.targets)[scored].mean())


@pytest.mark.parametrize("task", ["noisy_recall", "group_word", "copy", "compression"])
def test_accuracies_at_lengths_are_those_of_the_last_weights(task: str, tmp_path: Path) -> None:
    record = run_smoke(tmp_path, ROPE, f"task={task}", LENGTHS, "seed=3")
    run = load_run(folder(tmp_path, record))
    for length in (8, 16, 40):
        longer = build_task(compose([f"task={task}", "scale=smoke", f"task.seq_len={length}"]))
        expected = accuracy(run.model(), longer.generate("test", 3))
        assert record.metrics[f"test/accuracy@{length}"] == pytest.approx(expected, abs=1e-12)
    trained = run.task().seq_len
    assert record.metrics[f"test/accuracy@{trained}"] == record.metrics["test/accuracy"]


def test_training_and_everything_else_stay_what_they_are(tmp_path: Path) -> None:
    plain = run_smoke(tmp_path, ROPE)
    longer = run_smoke(tmp_path, ROPE, LENGTHS, "task.test_gaps=true")
    assert plain.run_id != longer.run_id
    assert "@" not in str(list(plain.metrics))
    assert longer.metrics | plain.metrics == longer.metrics
    for name in ("coefficients", "history", "backend", "data", "chance", "order_free", "initial"):
        assert getattr(plain, name) == getattr(longer, name), name
    assert not [name for row in history(tmp_path, longer) for name in row if "@" in name]


def test_without_them_a_run_has_the_name_it_had() -> None:
    plain = compose(["scale=smoke"])
    assert plain.values["task"]["test_lengths"] is None
    assert plain.values["task"]["test_gaps"] is False
    neutral = compose(["scale=smoke", "task.test_lengths=null", "task.test_gaps=false"])
    old = {k: v for k, v in plain.values["task"].items() if not k.startswith("test_")}
    before = plain.with_values({"task": old})
    assert plain.run_id == neutral.run_id == before.run_id == "14be5a0083a9e2dd"
    others = ["task.test_lengths=[32]", "task.test_lengths=[64]", "task.test_gaps=true"]
    assert len({compose(["scale=smoke", other]).run_id for other in others} | {plain.run_id}) == 4


@pytest.mark.usefixtures("in_float64")
def test_a_member_of_a_population_is_tested_as_its_own_run(tmp_path: Path) -> None:
    more = [ROPE, LENGTHS, "task.test_gaps=true"]
    together = records(train_population(small(tmp_path / "together", *more)))
    for config, ours in zip(small(tmp_path / "alone", *more), together, strict=True):
        solo = run_one(config.with_values({"population.mode": "sequential"}))
        assert ours.run_id == solo.run_id
        assert ours.population is not None
        assert ours.backend == solo.backend
        names = [name for name in solo.metrics if "@" in name]
        assert len(names) > 4
        assert {n: ours.metrics[n] for n in names} == {n: solo.metrics[n] for n in names}


def test_a_diverged_run_has_the_accuracy_of_guessing(tmp_path: Path) -> None:
    more = ("task=compression", "task.test_lengths=[8,24]", "optimizer.lr=1e30")
    record = run_smoke(tmp_path, "model=gla", *more)
    assert record.status == "diverged"
    for length in (8, 24):
        guessed = (1 + (length - 1) / 7) / length  # the last token is known
        assert record.metrics[f"test/accuracy@{length}"] == pytest.approx(guessed)


def test_learned_positions_refuse_longer_sequences_before_training(tmp_path: Path) -> None:
    config = smoke(tmp_path, "model=softmax_attention", "task.test_lengths=[8,16,40]")
    with pytest.raises(ConfigError, match=r"asks for 40, but position=learned has .*=16 places"):
        run_one(config)
    assert not list(tmp_path.iterdir()), "nothing is written"
    set_up(smoke(tmp_path, "model=softmax_attention", "task.test_lengths=[8,16]"))
    set_up(smoke(tmp_path, "model/position=sinusoidal", "task.test_lengths=[40]"))


BAD = {
    "task.test_lengths=[0]": "task.test_lengths=[0] must be a list of different whole numbers",
    "task.test_lengths=[]": "must be a list of different whole numbers",
    "task.test_lengths=64": "task.test_lengths=64 must be a list",
    "task.test_lengths=[long]": "task.test_lengths=['long'] must be a list",
    "task.test_lengths=[64.5]": "must be a list of different whole numbers",
    "task.test_lengths=[true]": "must be a list of different whole numbers",
    "task.test_lengths=[32,32]": "must be a list of different whole numbers",
    "task.test_lengths=[32,2]": "has 2, but task.seq_len=2 must be even and at least 4",
    "task.test_lengths=[33]": "has 33, but task.seq_len=33 must be even",
    "task=mqar task.test_lengths=[8]": "has 8, but task.seq_len=8 must be even and at least 12",
    "task.test_gaps=2": "task.test_gaps=2 must be true or false",
    "task=parity task.test_gaps=true": "Parity tells none; leave it out",
}


@pytest.mark.parametrize("overrides", BAD)
def test_bad_input_gets_one_sentence_before_training(overrides: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as error:
        run_one(smoke(tmp_path, ROPE, *overrides.split()))
    assert BAD[overrides] in str(error.value)
    assert "\n" not in str(error.value)
    assert not list(tmp_path.iterdir())


def test_files_have_one_length(tmp_path: Path) -> None:
    task = build_task(compose(["scale=smoke"]))
    section = {"test_lengths": [32], "seed": 0, "source": str(tmp_path)}
    with pytest.raises(ConfigError, match=r"files of task.source=.* have one length"):
        final_tests(task, task.generate("test", 0), section)


@pytest.mark.parametrize("setting", ["task.test_lengths=[64]", "task.test_gaps=true"])
def test_a_text_is_refused(setting: str, tmp_path: Path) -> None:
    config = smoke(tmp_path, "task=wikitext103", setting, f"paths.data={tmp_path}")
    with pytest.raises(ConfigError, match=r"is for tasks that are generated.*; leave task.test_"):
        run_one(config)


def test_octaves_of_gaps_share_out_all_questions() -> None:
    task = build_task(compose(["scale=lite", "task.num_test=50"]))
    test = task.generate("test", 0)
    tests = final_tests(task, test, {"test_gaps": True})
    expected: dict[str, int] = {}
    for tokens, wanted in zip(test.inputs.tolist(), test.targets.tolist(), strict=True):
        for place, value in enumerate(wanted):
            if value != IGNORE:
                shown = max(t for t in range(place) if tokens[t] == tokens[place])
                octave = 1
                while 2 * octave <= place - shown:
                    octave *= 2
                name = f"test/accuracy@gap{octave}"
                expected[name] = expected.get(name, 0) + 1
    counted = {name: int((t.examples.targets != IGNORE).sum()) for name, t in tests.items()}
    assert counted == expected
    assert len(counted) > 4
    for final in tests.values():
        scored = final.examples.targets != IGNORE
        assert np.array_equal(final.examples.targets[scored], test.targets[scored])
        assert final.examples.inputs is test.inputs


def test_gaps_are_those_of_the_longest_test(tmp_path: Path) -> None:
    more = ("task=noisy_recall", "task.test_lengths=[32,64]", "task.test_gaps=true", "seed=3")
    record = run_smoke(tmp_path, ROPE, *more)
    longest = build_task(compose(["task=noisy_recall", "scale=smoke", "task.seq_len=64"]))
    examples = longest.generate("test", 3)
    gaps = longest.gaps(examples)
    assert gaps is not None
    octaves = np.log2(gaps[examples.targets != IGNORE]).astype(int)
    counts = {f"test/accuracy@gap{2**n}": (octaves == n).sum() for n in set(octaves.tolist())}
    assert counts.keys() == {name for name in record.metrics if "@gap" in name}
    accuracies = [record.metrics[name] for name in counts]
    weighted = np.average(accuracies, weights=list(counts.values()))
    assert weighted == pytest.approx(record.metrics["test/accuracy@64"])
