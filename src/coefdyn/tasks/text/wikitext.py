"""Language modelling on prepared tokens: predict each token from those before it in its block."""

from pathlib import Path

import numpy as np
from jaxtyping import Int64, UInt16
from numpy import ndarray

from coefdyn.tasks.task import IGNORE, Examples, Task
from coefdyn.tasks.text.corpus import Sidecar, read_split


class Blocks:
    """A stream of tokens cut into blocks of `length` targets.

    If `whole`, the last block may be short, and every token but the first is a target once.
    Otherwise tokens that do not fill a block are left out.
    """

    def __init__(self, tokens: UInt16[ndarray, " t"], length: int, whole: bool) -> None:
        self.tokens, self.length = tokens, length
        targets = len(tokens) - 1
        self.count = -(-targets // length) if whole else targets // length

    def __len__(self) -> int:
        return self.count

    def take(self, index: Int64[ndarray, " b"]) -> Examples:
        inputs = np.zeros((len(index), self.length), dtype=np.int64)
        targets = np.full((len(index), self.length), IGNORE, dtype=np.int64)
        for row, block in enumerate(index):
            stretch = self.tokens[block * self.length : (block + 1) * self.length + 1]
            inputs[row, : len(stretch) - 1] = stretch[:-1]
            targets[row, : len(stretch) - 1] = stretch[1:]
        return Examples(inputs, targets)


class Wikitext(Task):
    """WikiText in blocks of `seq_len`, from the files of scripts/prepare_wikitext.py in `data`.

    An epoch is `epoch_steps` training steps, whatever the size of the corpus. So the length of a
    run, and how often progress is recorded, do not depend on the corpus.
    """

    language = True

    def __init__(self, vocab_size: int, seq_len: int, data: str, epoch_steps: int) -> None:
        super().__init__(vocab_size, seq_len, num_train=1, num_test=1)
        if type(epoch_steps) is not int or epoch_steps < 1:
            raise ValueError(f"task.epoch_steps={epoch_steps} must be a whole number above 0")
        self.data, self.epoch_steps = Path(data), epoch_steps

    @property
    def chance(self) -> float:
        return 1 / self.vocab_size

    def blocks(self, split: str) -> tuple[Blocks, Sidecar]:
        tokens, sidecar = read_split(self.data, split, self.vocab_size)
        blocks = Blocks(tokens, self.seq_len, whole=split != "train")
        if len(blocks) == 0:
            raise ValueError(
                f"{self.data}/{split}.bin has {len(tokens)} tokens, fewer than a block of "
                f"task.seq_len={self.seq_len}"
            )
        return blocks, sidecar
