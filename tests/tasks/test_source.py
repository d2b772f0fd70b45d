"""Data from files in the published layout, and from the original code."""

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from coefdyn.errors import ConfigError
from coefdyn.tasks.mad.in_context_recall import InContextRecall
from coefdyn.tasks.mad.memorization import Memorization
from coefdyn.tasks.mad.selective_copying import SelectiveCopying
from coefdyn.tasks.source import identity, load
from coefdyn.tasks.task import IGNORE, Examples, Split
from tests.tasks.makers import parity

TASK = SelectiveCopying(vocab_size=8, seq_len=16, num_tokens_to_copy=4, num_train=6, num_test=5)


def write(directory: Path) -> str:
    splits: tuple[Split, ...] = ("train", "test")
    for split in splits:
        (directory / split).mkdir()
        for name, side in zip(("inputs", "targets"), TASK.generate(split, 3), strict=True):
            np.save(directory / split / f"{name}.npy", side.astype(np.int32))
    return str(directory)


def equal(a: Examples, b: Examples) -> bool:
    return all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))


def test_a_directory_gives_what_was_written(tmp_path: Path) -> None:
    source = write(tmp_path)
    assert equal(load(TASK, "train", 0, source), TASK.generate("train", 3))
    assert equal(load(TASK, "test", 0, source), TASK.generate("test", 3))
    assert equal(load(TASK, "test", 7, "native"), TASK.generate("test", 7))


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda path: path.write_bytes(path.read_bytes()[:-40]), "not a readable npy file"),
        (lambda path: path.write_bytes(b"no array"), "not a readable npy file"),
        (lambda path: path.write_bytes(b""), "not a readable npy file"),
        (lambda path: path.unlink(), "is missing"),
        (lambda path: np.save(path, np.zeros((6, 16))), "must hold integers"),
        (lambda path: np.save(path, np.zeros(6, dtype=int)), "must hold integers"),
        (lambda path: np.save(path, np.array([{}]), allow_pickle=True), "not a readable npy file"),
        (lambda path: np.save(path, np.zeros((6, 15), dtype=int)), "but targets"),
        (lambda path: np.save(path, np.full((6, 16), 8)), "outside 0..7"),
        (lambda path: np.save(path, np.full((6, 16), -1)), "outside 0..7"),
        (lambda path: path.write_bytes(b"PK" + bytes(90)), "not a readable npy file"),
        (lambda path: np.save(path.with_name("targets.npy"), np.full((6, 16), -100)), "scored"),
    ],
)  # fmt: skip
def test_damaged_files_get_one_sentence(spoil, message, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    source = write(tmp_path)
    spoil(tmp_path / "train" / "inputs.npy")
    with pytest.raises(ConfigError, match=message) as error:
        load(TASK, "train", 0, source)
    assert "\n" not in str(error.value)


def test_files_stand_for_what_they_hold(tmp_path: Path) -> None:
    source = write(tmp_path)
    known = identity(source)
    moved = tmp_path.rename(tmp_path.with_name("moved"))
    assert identity(str(moved)) == known != str(moved)
    np.save(moved / "test" / "inputs.npy", np.zeros((5, 16), dtype=int))
    assert identity(str(moved)) != known
    assert identity("native") == "native"


def test_files_must_be_what_the_settings_say(tmp_path: Path) -> None:
    source = write(tmp_path)
    other = SelectiveCopying(
        vocab_size=8, seq_len=18, num_tokens_to_copy=4, num_train=7, num_test=5
    )
    with pytest.raises(ConfigError, match=r"6 sequences of 16 steps.*ask for 7 of 18"):
        load(other, "train", 0, source)


def test_an_unknown_source_names_the_choices() -> None:
    with pytest.raises(ConfigError, match=r"nowhere is no directory; choose native, mad_lab"):
        load(TASK, "train", 0, "nowhere")


def test_mad_lab_without_its_checkout_says_where_to_get_it() -> None:
    with pytest.raises(ConfigError, match="PYTHONPATH"):
        load(TASK, "train", 0, "mad_lab")


def test_mad_lab_has_only_its_own_tasks() -> None:
    with pytest.raises(ConfigError, match=r"mad_lab has no Parity.*; use task.source=native"):
        load(parity(), "train", 0, "mad_lab")


def test_mad_lab_calls_the_original_with_our_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stand-ins with the original's signatures, which write what they were given."""

    def recall(
        rng: np.random.Generator,
        seq_len: int,
        is_training: bool = True,
        vocab_size: int = 16,
        multi_query: bool = False,
        noise_vocab_size: int = 0,
        frac_noise: float = 0.0,
        **others: object,
    ) -> tuple[np.ndarray, np.ndarray]:
        assert not others
        assert (vocab_size, multi_query, noise_vocab_size, frac_noise) == (12, True, 4, 0.2)
        row = rng.integers(12, size=seq_len - 1)
        return row, np.full_like(row, 11 if is_training else 10)

    def memorize(
        seq_len: int, kv_map_seed: int = 0, **others: object
    ) -> tuple[np.ndarray, np.ndarray]:
        assert set(others) == {"rng"}
        return np.full(seq_len, kv_map_seed), np.full(seq_len, kv_map_seed)

    module = ModuleType("mad.data.instances")
    module.generate_in_context_recall_instance = recall  # type: ignore[attr-defined]
    module.generate_memorization_instance = memorize  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "mad", ModuleType("mad"))
    monkeypatch.setitem(sys.modules, "mad.data", ModuleType("mad.data"))
    monkeypatch.setitem(sys.modules, "mad.data.instances", module)
    task = InContextRecall(
        vocab_size=12, seq_len=16, multi_query=True, frac_noise=0.2, noise_vocab_size=4,
        num_train=5, num_test=3,
    )  # fmt: skip
    train, test = load(task, "train", 1, "mad_lab"), load(task, "test", 1, "mad_lab")
    assert train.inputs.shape == (5, 15)
    assert test.inputs.shape == (3, 15)
    assert (train.targets == 11).all()
    assert (test.targets == 10).all()
    assert equal(train, load(task, "train", 1, "mad_lab"))
    streams = [(split, seed) for split in ("train", "test") for seed in range(4)]
    firsts = {load(task, *stream, "mad_lab").inputs[0].tobytes() for stream in streams}
    assert len(firsts) == len(streams), "two streams are the same"
    fixed = Memorization(
        vocab_size=10, seq_len=4, frac_noise=0.0, noise_vocab_size=0, map_seed=7, num_train=2,
        num_test=2,
    )  # fmt: skip
    assert (load(fixed, "train", 0, "mad_lab").targets == 7).all()


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda x, y: Examples(x.astype(float), y), "must be Examples of int64"),
        (lambda x, y: Examples(x, y[:, :-1]), "has inputs"),
        (lambda x, y: Examples(x, np.full_like(y, IGNORE)), "no target is scored"),
        (lambda x, y: Examples(x + 100, y), "token ids outside"),
    ],
)
def test_what_a_task_generates_is_checked_as_files_are(
    spoil: Callable[..., object], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = TASK.generate("train", 0)
    monkeypatch.setattr(SelectiveCopying, "generate", lambda *_: spoil(*whole))
    with pytest.raises(ConfigError, match=words):
        load(TASK, "train", 0, "native")
