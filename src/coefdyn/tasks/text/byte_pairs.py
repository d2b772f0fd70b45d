"""Byte-pair encodings: GPT-2's, from local files or the Hub, or one trained on the text at hand.

Each is two files, a vocabulary and merges, which either of two libraries can read.
"""

import hashlib
from collections.abc import Iterable
from pathlib import Path

from coefdyn.errors import ConfigError
from coefdyn.tasks.text.corpus import Encoder

NAMES = (("vocab.json", "merges.txt"), ("encoder.json", "vocab.bpe"))
ENGINES = ("tokenizers", "tiktoken")
# Contractions, words, numbers and the rest, each with the space before it; runs of white space.
WORDS = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


class ByTokenizers:
    """Hugging Face's tokenizers."""

    def __init__(self, vocab: Path, merges: Path) -> None:
        from tokenizers import Tokenizer, models, pre_tokenizers

        self.identity = identity(vocab, merges)
        try:
            self.tokenizer = Tokenizer(models.BPE.from_file(str(vocab), str(merges)))
        except Exception as error:  # the library raises plain Exception
            raise ConfigError(f"{vocab} and {merges} hold no such vocabulary: {error}") from error
        self.tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        self.vocab_size = self.tokenizer.get_vocab_size()

    def encode(self, rows: list[str]) -> list[list[int]]:
        return [encoding.ids for encoding in self.tokenizer.encode_batch(rows)]


class ByTiktoken:
    """OpenAI's tiktoken: the same ids, faster on long files."""

    def __init__(self, vocab: Path, merges: Path) -> None:
        try:
            import tiktoken
            from tiktoken.load import data_gym_to_mergeable_bpe_ranks
        except ImportError as error:
            raise ConfigError("engine=tiktoken needs tiktoken: pip install tiktoken") from error
        self.identity = identity(vocab, merges)
        ranks = data_gym_to_mergeable_bpe_ranks(str(merges), str(vocab))
        self.encoding = tiktoken.Encoding(
            "gpt2", pat_str=WORDS, mergeable_ranks=ranks, special_tokens={}
        )
        self.vocab_size = len(ranks) + 1  # and the end of a text, which no row contains

    def encode(self, rows: list[str]) -> list[list[int]]:
        return self.encoding.encode_ordinary_batch(rows)


def train(rows: Iterable[str], vocab_size: object, directory: Path) -> Path:
    """Learn an encoding of `vocab_size` tokens, bytes among them, and write its files.

    The same text gives the same files.
    """
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    letters = pre_tokenizers.ByteLevel.alphabet()
    if not isinstance(vocab_size, int) or not len(letters) < vocab_size <= 2**16:
        raise ConfigError(
            f"vocab_size={vocab_size} must be a whole number above the {len(letters)} bytes, and "
            f"at most {2**16}"
        )
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size, initial_alphabet=letters, show_progress=False
    )
    tokenizer.train_from_iterator(rows, trainer)
    directory.mkdir(parents=True, exist_ok=True)
    tokenizer.model.save(str(directory))
    return directory


def byte_pairs(tokenizer: str, engine: str) -> Encoder:
    """`tokenizer` is a directory with the two files, or hub."""
    if engine not in ENGINES:
        raise ConfigError(f"engine={engine} is not known; choose from {', '.join(ENGINES)}")
    vocab, merges = _from_hub() if tokenizer == "hub" else files_in(Path(tokenizer))
    encoder: Encoder = (ByTokenizers if engine == "tokenizers" else ByTiktoken)(vocab, merges)
    if encoder.vocab_size > 2**16:
        raise ConfigError(f"{vocab} has {encoder.vocab_size} tokens; uint16 ids allow only 65536")
    return encoder


def files_in(directory: Path) -> tuple[Path, Path]:
    """The vocabulary and the merges, under either of their customary names."""
    for vocab, merges in NAMES:
        if (directory / vocab).is_file() and (directory / merges).is_file():
            return directory / vocab, directory / merges
    raise ConfigError(
        f"tokenizer={directory} has neither vocab.json and merges.txt nor encoder.json and "
        "vocab.bpe; give a directory that has, or hub"
    )


def _from_hub() -> tuple[Path, Path]:
    try:
        from huggingface_hub import hf_hub_download
    except ImportError as error:
        raise ConfigError(
            "tokenizer=hub needs huggingface_hub: pip install 'coefdyn[hub]'"
        ) from error
    try:
        vocab, merges = (hf_hub_download("openai-community/gpt2", name) for name in NAMES[0])
    except Exception as error:  # network, permissions: any type of error
        raise ConfigError(
            f"tokenizer=hub cannot be loaded ({type(error).__name__}); download vocab.json and "
            "merges.txt of GPT-2 and give their directory as tokenizer"
        ) from error
    return Path(vocab), Path(merges)


def identity(vocab: Path, merges: Path) -> str:
    digest = hashlib.sha256()
    for path in (vocab, merges):
        digest.update(path.read_bytes())
    return digest.hexdigest()
