"""Text: from files to tokens, and from tokens to blocks."""

import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import decoders

from coefdyn.errors import ConfigError
from coefdyn.runs.batches import BlockBatches
from coefdyn.tasks.task import IGNORE
from coefdyn.tasks.text.byte_pairs import ByTokenizers, byte_pairs, files_in
from coefdyn.tasks.text.corpus import rows_of_text
from coefdyn.tasks.text.prepare import prepare
from coefdyn.tasks.text.wikitext import Blocks
from tests.tasks.texts import TEXT

REAL = os.environ.get("COEFDYN_TEXT")  # a directory with gpt2/ and wikitext-2/raw/, as in CI none


def test_rows_are_those_of_the_hub(tmp_path: Path) -> None:
    path = tmp_path / "x.raw"
    path.write_text(" \n = A = \n \nlast without end")
    assert list(rows_of_text(path)) == ["", " = A = \n", "", "last without end"]


def test_preparing_writes_once_and_leaves_nothing_half_done(
    text: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert prepare(text) == 0
    out = Path(text["out"])
    assert sorted(p.name for p in out.iterdir()) == [
        f"{split}.{kind}" for split in ("test", "train", "validation") for kind in ("bin", "json")
    ]
    sidecar = json.loads((out / "test.json").read_text())
    tokens = np.fromfile(out / "test.bin", dtype=np.uint16)
    assert len(tokens) == sidecar["tokens"]
    assert sidecar["words"] == len(TEXT.split())
    encoder = byte_pairs(text["tokenizer"], "tokenizers")
    rows = ["" if not line.strip() else line for line in TEXT.splitlines(keepends=True)]
    assert tokens.tolist() == [i for row in encoder.encode(rows) for i in row]
    before = (out / "test.bin").stat().st_mtime_ns
    assert prepare(text) == 0
    assert (out / "test.bin").stat().st_mtime_ns == before
    assert "is there already" in capsys.readouterr().out


def test_a_trained_tokenizer_writes_the_text_with_fewer_tokens_and_is_the_same_each_time(
    text: dict[str, Any],
) -> None:
    keys = {**text, "tokenizer": "trained", "vocab_size": 300}
    assert prepare(keys) == 0
    out = Path(text["out"])
    files = sorted((out / "tokenizer").iterdir())
    assert [path.name for path in files] == ["merges.txt", "vocab.json"]
    vocab, merges = files_in(out / "tokenizer")
    encoder = ByTokenizers(vocab, merges)
    assert encoder.vocab_size == json.loads((out / "train.json").read_text())["vocab_size"] <= 300
    (ids,) = encoder.encode([TEXT])
    (coarse,) = byte_pairs(text["tokenizer"], "tokenizers").encode([TEXT])
    assert len(ids) < len(coarse) / 2
    encoder.tokenizer.decoder = decoders.ByteLevel()
    assert encoder.tokenizer.decode(ids) == TEXT
    before = [path.read_bytes() for path in files]
    assert prepare({**keys, "out": str(out.parent / "again")}) == 0
    assert [p.read_bytes() for p in sorted((out.parent / "again/tokenizer").iterdir())] == before


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"vocab_size": 256}, "vocab_size=256 must be a whole number above the 256 bytes"),
        ({"vocab_size": 70000}, "at most 65536"),
        ({"vocab_size": "many"}, "vocab_size=many must be"),
        ({"engine": "tiktoken"}, "choose engine=tokenizers"),
    ],
)
def test_a_tokenizer_that_cannot_be_trained_gets_one_sentence(
    text: dict[str, Any], change: dict[str, Any], words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        prepare({**text, "tokenizer": "trained", "vocab_size": 300, **change})
    assert not Path(text["out"]).exists()


def test_an_interruption_leaves_no_split(
    text: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    from coefdyn.tasks.text import byte_pairs as module

    def stop(*_: Any) -> list[list[int]]:
        raise KeyboardInterrupt

    monkeypatch.setattr(module.ByTokenizers, "encode", stop)
    with pytest.raises(KeyboardInterrupt):
        prepare(text)
    assert list(Path(text["out"]).iterdir()) == []


def test_two_libraries_give_the_same_tokens() -> None:
    pytest.importorskip("tiktoken")
    if REAL is None:  # tiktoken wants merges in the order of a real vocabulary
        pytest.skip("needs COEFDYN_TEXT, a directory with gpt2/ and wikitext-2/raw/")
    rows = list(rows_of_text(Path(REAL) / "wikitext-2" / "raw" / "wiki.test.raw"))
    one, other = (
        byte_pairs(f"{REAL}/gpt2", engine).encode(rows) for engine in ("tokenizers", "tiktoken")
    )
    assert one == other
    assert sum(map(len, one)) == 283287


def test_the_counts_of_the_real_files(tmp_path: Path) -> None:
    if REAL is None:
        pytest.skip("needs COEFDYN_TEXT, a directory with gpt2/ and wikitext-2/raw/")
    keys = {"source": f"{REAL}/wikitext-2/raw", "tokenizer": f"{REAL}/gpt2", "out": str(tmp_path),
            "name": "", "splits": ["validation", "test"], "engine": "tokenizers"}  # fmt: skip
    assert prepare(keys) == 0
    counts = [json.loads((tmp_path / f"{s}.json").read_text())["tokens"] for s in keys["splits"]]
    assert counts == [247289, 283287]


def test_every_token_but_the_first_is_a_target_once() -> None:
    tokens = np.arange(1, 24, dtype=np.uint16)
    whole = Blocks(tokens, 5, whole=True)
    inputs, targets = whole.take(np.arange(len(whole)))
    assert targets[targets != IGNORE].tolist() == list(range(2, 24))
    assert (inputs[:4] + 1 == targets[:4]).all()
    assert len(Blocks(tokens, 5, whole=False)) == 4
    batches = BlockBatches(whole, 2, torch.device("cpu"))
    assert len(list(batches)) == len(batches) == 3


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"source": "???"}, "source is needed"),
        ({"source": "/nowhere"}, "is no directory; choose a directory or hub"),
        ({"tokenizer": "/nowhere"}, "has neither vocab.json"),
        ({"engine": "words"}, "engine=words is not known"),
        ({"splits": ["dev"]}, "must be a list of train, validation, test"),
    ],
)
def test_bad_input_to_preparing_gets_one_sentence(
    text: dict[str, Any], change: dict[str, Any], words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        prepare({**text, **change})
    (Path(text["source"]) / "wiki.train.tokens").unlink()
    with pytest.raises(ConfigError, match="has no train split"):
        prepare(text)
    assert not Path(text["out"]).exists()


@pytest.mark.parametrize("missing", ["vocab.json", "merges.txt"])
def test_half_a_tokenizer_is_none(text: dict[str, Any], missing: str) -> None:
    (Path(text["tokenizer"]) / missing).unlink()
    with pytest.raises(ConfigError, match=r"has neither vocab.json and merges.txt nor"):
        prepare(text)


@pytest.mark.parametrize("what", ["source", "tokenizer"])
@pytest.mark.parametrize(
    ("broken", "words"),
    [
        (None, "pip install 'coefdyn\\[hub\\]'"),
        (ConnectionError("no route"), r"=hub cannot be loaded \(ConnectionError\); download"),
    ],
)
def test_without_the_hub_there_is_one_sentence(
    text: dict[str, Any],
    what: str,
    broken: Exception | None,
    words: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails(*_: object, **__: object) -> None:
        assert broken is not None
        raise broken

    module, function = {
        "source": ("datasets", "load_dataset"),
        "tokenizer": ("huggingface_hub", "hf_hub_download"),
    }[what]
    stand_in = None if broken is None else SimpleNamespace(**{function: fails})
    monkeypatch.setitem(sys.modules, module, stand_in)  # None: not installed
    with pytest.raises(ConfigError, match=words):
        prepare({**text, what: "hub"})
    assert not list(Path(text["out"]).parent.glob("*/*.bin"))
