"""The command line of scripts/prepare_wikitext.py."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from coefdyn.errors import ConfigError
from coefdyn.tasks.text.byte_pairs import ENGINES, byte_pairs, train
from coefdyn.tasks.text.corpus import (
    SPLITS,
    is_prepared,
    parquet_files,
    rows_of_hub,
    rows_of_parquet,
    rows_of_text,
    text_file,
    write_split,
)

TRAINED = "trained"  # a tokenizer of one's own


def prepare(keys: dict[str, Any]) -> int:
    """Write the tokens of every split that is not prepared yet with this tokenizer."""
    for name, more in (("source", ""), ("tokenizer", f" or tokenizer={TRAINED}")):
        if not isinstance(keys.get(name), str) or keys[name] == "???":
            raise ConfigError(f"{name} is needed: {name}=<directory> or {name}=hub{more}")
    splits = keys["splits"]
    if not isinstance(splits, list) or not splits or not set(splits) <= set(SPLITS):
        raise ConfigError(f"splits={splits} must be a list of {', '.join(SPLITS)}")
    console, out = Console(stderr=True), Path(str(keys["out"]))
    sources = {split: _source(keys["source"], keys["name"], split) for split in splits}
    encoder = byte_pairs(_tokenizer(keys, out), str(keys["engine"]))
    for split in splits:
        name, rows = sources[split]
        if is_prepared(out, split, name, encoder):
            print(f"{out}/{split}.bin is there already")
            continue
        sidecar = write_split(rows, name, encoder, out, split, console)
        print(f"{out}/{split}.bin: {sidecar.tokens} tokens of {sidecar.words} words")
    return 0


def _tokenizer(keys: dict[str, Any], out: Path) -> str:
    """Where the tokenizer is; one that is to be trained is trained on the train split first."""
    if keys["tokenizer"] != TRAINED:
        return str(keys["tokenizer"])
    if keys["engine"] != ENGINES[0]:
        raise ConfigError(
            f"engine={keys['engine']} reads no tokenizer={TRAINED}; choose engine={ENGINES[0]}"
        )
    _, rows = _source(keys["source"], keys["name"], "train")
    return str(train(rows, keys["vocab_size"], out / "tokenizer"))


def _source(source: str, hub_name: str, split: str) -> tuple[str, Iterable[str]]:
    """A name for the text of a split, and its rows. Missing files raise before any writing."""
    if source == "hub":
        return f"hub {hub_name} {split}", rows_of_hub(hub_name, split)
    directory = Path(source)
    if not directory.is_dir():
        raise ConfigError(f"source={source} is no directory; choose a directory or hub")
    parquet: Sequence[Path] = parquet_files(directory, split)
    if parquet:
        return ", ".join(path.name for path in parquet), rows_of_parquet(parquet)
    path = text_file(directory, split)
    return f"{path.name}, {path.stat().st_size} bytes", rows_of_text(path)
