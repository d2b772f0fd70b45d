"""Text as tokens on disk: a split is a flat file of uint16 ids, and a sidecar that describes it.

Text is read in rows, as on the Hugging Face Hub: a blank line is an empty row, any other line is a
row that ends in a newline. Rows are tokenized one by one and joined without a separator.
"""

import hashlib
import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import UInt16
from numpy import ndarray
from rich.console import Console
from rich.progress import Progress

from coefdyn.errors import ConfigError

SPLITS = ("train", "validation", "test")
CONVENTION = "hub rows: blank line = empty row, others end in a newline; no eos; one stream"
ROWS_AT_A_TIME = 20_000
FILE_NAMES = {"train": "train", "validation": "valid", "test": "test"}


@dataclass(frozen=True)
class Sidecar:
    """What a file of tokens holds. Equal sidecars mean equal tokens."""

    source: str
    sha256: str  # of the text
    tokenizer: str  # hash of its files
    vocab_size: int
    convention: str
    tokens: int
    words: int  # of the text, separated by white space

    @classmethod
    def read(cls, path: Path) -> "Sidecar":
        try:
            return cls(**json.loads(path.read_text()))
        except FileNotFoundError:
            raise ConfigError(
                f"{path} is missing; scripts/prepare_wikitext.py makes it and the tokens"
            ) from None
        except (ValueError, TypeError, OSError) as error:
            raise ConfigError(f"{path} cannot be read; delete it and prepare again") from error


@runtime_checkable
class Encoder(Protocol):
    """A tokenizer: rows of text to ids."""

    identity: str
    vocab_size: int

    def encode(self, rows: list[str]) -> list[list[int]]: ...


def text_file(directory: Path, split: str) -> Path:
    """The file of a split, .raw or .tokens."""
    names = [f"wiki.{FILE_NAMES[split]}.{ending}" for ending in ("raw", "tokens")]
    for name in names:
        if (directory / name).is_file():
            return directory / name
    raise ConfigError(
        f"source={directory} has no {split} split ({' or '.join(names)}, or parquet files); add "
        "it, or name the splits to prepare with splits=[...]"
    )


def parquet_files(directory: Path, split: str) -> list[Path]:
    return sorted(directory.glob(f"{split}-*.parquet"))


def rows_of_text(path: Path) -> Iterator[str]:
    with path.open(encoding="utf-8", newline="\n") as file:
        for line in file:
            yield "" if not line.strip() else line


def rows_of_parquet(paths: Iterable[Path]) -> Iterator[str]:
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise ConfigError("parquet files need pyarrow: pip install 'coefdyn[hub]'") from error
    for path in paths:
        for batch in pyarrow.parquet.ParquetFile(path).iter_batches(columns=["text"]):
            yield from batch.column("text").to_pylist()


def rows_of_hub(name: str, split: str) -> Iterator[str]:
    try:
        import datasets
    except ImportError as error:
        raise ConfigError("source=hub needs datasets: pip install 'coefdyn[hub]'") from error
    try:
        rows = datasets.load_dataset("Salesforce/wikitext", name, split=split)
    except Exception as error:  # network, permissions, names: any type of error
        raise ConfigError(
            f"source=hub cannot be loaded ({type(error).__name__}); download the files and give "
            "their directory as source"
        ) from error
    for row in rows:
        yield row["text"]


def write_split(
    rows: Iterable[str], source: str, encoder: Encoder, out: Path, split: str, console: Console
) -> Sidecar:
    """Write the tokens, then the sidecar, each by rename: without a sidecar a split is absent."""
    out.mkdir(parents=True, exist_ok=True)
    digest, tokens, words = hashlib.sha256(), 0, 0
    partial = out / f"{split}.bin.{os.getpid()}.partial"
    try:
        with partial.open("wb") as file, Progress(console=console) as bar:
            task = bar.add_task(f"{split}: tokens", total=None)
            for chunk in _chunks(rows):
                text = "".join(chunk)
                digest.update(text.encode())
                words += len(text.split())
                ids = np.concatenate(
                    [np.array(row, dtype=np.uint16) for row in encoder.encode(chunk)]
                )
                file.write(ids.tobytes())
                tokens += len(ids)
                bar.update(task, completed=tokens, description=f"{split}: {tokens:,} tokens")
        if tokens == 0:
            raise ConfigError(f"source={source} has no text in its {split} split")
        partial.replace(out / f"{split}.bin")
    finally:
        partial.unlink(missing_ok=True)
    sidecar = Sidecar(source, digest.hexdigest(), encoder.identity, encoder.vocab_size,
                      CONVENTION, tokens, words)  # fmt: skip
    draft = out / f"{split}.json.partial"
    draft.write_text(json.dumps(asdict(sidecar), indent=1) + "\n")
    draft.replace(out / f"{split}.json")
    return sidecar


def _chunks(rows: Iterable[str]) -> Iterator[list[str]]:
    chunk: list[str] = []
    for row in rows:
        chunk.append(row)
        if len(chunk) == ROWS_AT_A_TIME:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


def is_prepared(out: Path, split: str, source: str, encoder: Encoder) -> bool:
    """Whether `out` holds this split of the same source and tokenizer, in full."""
    if not (out / f"{split}.json").exists():
        return False
    sidecar = Sidecar.read(out / f"{split}.json")
    size = (out / f"{split}.bin").stat().st_size if (out / f"{split}.bin").exists() else -1
    same = (sidecar.source, sidecar.tokenizer, sidecar.convention) == (
        source,
        encoder.identity,
        CONVENTION,
    )
    return same and size == 2 * sidecar.tokens


def read_split(
    directory: Path, split: str, vocab_size: int
) -> tuple[UInt16[ndarray, " t"], Sidecar]:
    """The tokens of a split, mapped from disk, and their sidecar; ConfigError if they differ."""
    sidecar, path = Sidecar.read(directory / f"{split}.json"), directory / f"{split}.bin"
    if not path.exists() or path.stat().st_size != 2 * sidecar.tokens:
        raise ConfigError(
            f"{path} is not the {sidecar.tokens} tokens that its sidecar promises; prepare again"
        )
    if sidecar.vocab_size != vocab_size:
        raise ConfigError(
            f"{path} was made with a tokenizer of {sidecar.vocab_size} tokens, but "
            f"task.vocab_size={vocab_size}; set it to match, or prepare again"
        )
    tokens = np.memmap(path, dtype=np.uint16, mode="r")
    largest = max(int(tokens[i : i + 2**24].max()) for i in range(0, len(tokens), 2**24))
    if largest >= vocab_size:
        raise ConfigError(f"{path} has token {largest}, beyond task.vocab_size={vocab_size}")
    return tokens, sidecar


def text_identity(directory: Path) -> str:
    """The text as part of a run's name: hashes of text and tokenizer, wherever the files are. Text
    that is not prepared is named by its directory."""
    if not all((directory / f"{split}.json").exists() for split in SPLITS):
        return str(directory)
    sidecars = [Sidecar.read(directory / f"{split}.json") for split in SPLITS]
    return " ".join(f"{sidecar.sha256} {sidecar.tokenizer}" for sidecar in sidecars)
