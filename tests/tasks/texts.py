"""A small text, and a tokenizer that can write it."""

import json
from pathlib import Path
from typing import Any

TEXT = " \n = A title = \n \n The cat sat on the mat . The dog did not . \n" * 12


def tiny_tokenizer(directory: Path) -> Path:
    """The bytes, and two merges: every text can be written with it."""
    from tokenizers import pre_tokenizers

    directory.mkdir(parents=True, exist_ok=True)
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {letter: i for i, letter in enumerate(letters)} | {"th": 256, "at": 257}
    (directory / "vocab.json").write_text(json.dumps(vocab))
    (directory / "merges.txt").write_text("#version: 0.2\nt h\na t\n")
    return directory


def small_text(tmp_path: Path) -> dict[str, Any]:
    source = tmp_path / "text"
    source.mkdir()
    for name in ("train", "valid", "test"):
        (source / f"wiki.{name}.tokens").write_text(TEXT)
    return {
        "source": str(source),
        "tokenizer": str(tiny_tokenizer(tmp_path / "gpt2")),
        "name": "wikitext-2-raw-v1",
        "out": str(tmp_path / "data" / "smoke"),
        "splits": ["train", "validation", "test"],
        "engine": "tokenizers",
    }
