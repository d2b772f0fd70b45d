"""Remember one bit through instructions that do not change it. Liu et al. 2023."""

import numpy as np
from jaxtyping import Int64
from numpy import ndarray

from coefdyn.tasks.task import IGNORE, Examples, Split, Task, check_vocabulary

WRITE, READ, SKIP = 2, 3, 4  # tokens of the instructions; the bits are 0 and 1


class FlipFlop(Task):
    """Pairs of an instruction and a bit. At each read, the target is the bit written last.

    An instruction is "ignore" with probability `p_ignore`; otherwise write or read, equally likely.
    The first one writes and the last one reads. The bit after a write or an ignore is random. The
    bit after a read is the answer, so that a model sees it one step later. Only reads are scored.
    Tokens: bits 0 and 1, write 2, read 3, ignore 4.
    """

    def __init__(
        self,
        vocab_size: int,
        seq_len: int,
        num_train: int,
        num_test: int,
        p_ignore: float = 0.8,
    ) -> None:
        super().__init__(vocab_size, seq_len, num_train, num_test)
        check_vocabulary(vocab_size, SKIP + 1, "two bits and three instructions")
        if seq_len % 2 or seq_len < 4:
            raise ValueError(
                f"task.seq_len={seq_len} must be even and at least 4: a write, a read, their bits"
            )
        if type(p_ignore) not in (int, float) or not 0 <= p_ignore < 1:
            raise ValueError(
                f"task.p_ignore={p_ignore} must lie in [0, 1), to leave room for writes and reads"
            )
        self.p_ignore = p_ignore

    @property
    def chance(self) -> float:
        return 1 / 2

    def gaps(self, examples: Examples) -> Int64[ndarray, "b t"]:
        """From a read back to the last write."""
        instructions = examples.inputs[:, ::2]
        since = np.arange(instructions.shape[1]) - last_write(instructions)
        return np.repeat(2 * since, 2, axis=1)

    def draw(self, count: int, split: Split, rng: np.random.Generator) -> Examples:
        pairs = self.seq_len // 2
        share = (1 - self.p_ignore) / 2
        uniform = rng.random((count, pairs))
        instructions = np.where(uniform < share, WRITE, np.where(uniform < 2 * share, READ, SKIP))
        instructions[:, 0], instructions[:, -1] = WRITE, READ
        bits = rng.integers(2, size=(count, pairs))
        written = np.take_along_axis(bits, last_write(instructions), axis=1)
        is_read = instructions == READ
        inputs = np.stack([instructions, np.where(is_read, written, bits)], axis=-1)
        targets = np.full_like(inputs, IGNORE)
        targets[..., 0][is_read] = written[is_read]
        return Examples(inputs.reshape(count, -1), targets.reshape(count, -1))


def last_write(instructions: Int64[ndarray, "b s"]) -> Int64[ndarray, "b s"]:
    """For each instruction, the place of the last write up to it."""
    places = np.where(instructions == WRITE, np.arange(instructions.shape[1]), 0)
    return np.maximum.accumulate(places, axis=1)
