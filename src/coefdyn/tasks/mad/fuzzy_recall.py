"""Recall where keys and values are tuples of tokens of varying length."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Int64
from numpy import ndarray

from coefdyn.tasks.task import (
    IGNORE,
    Examples,
    Split,
    Task,
    check_multi_query,
    check_noise,
    halves,
    shifted,
)


class FuzzyRecall(Task):
    """Pairs of a key motif and a value motif. The last pair, the probe, repeats an earlier one.

    Motifs are tuples of 1 to `k_motif_size` (`v_motif_size`) distinct tokens; keys of the test
    split have the full size. Sequences are padded on the left with V-1 (V-2 without `multi_query`,
    where a copy token V-1 precedes the probe). With `multi_query` the test scores the values of all
    repeated keys, otherwise only the probe's. Every probe is planted earlier, so that it can be
    answered; the original generator fails to do so for 2 to 3 % of them.
    """

    original = "generate_fuzzy_in_context_recall_instance"

    def __init__(
        self,
        vocab_size: int,
        seq_len: int,
        k_motif_size: int,
        v_motif_size: int,
        num_train: int,
        num_test: int,
        multi_query: bool = True,
        frac_noise: float = 0.0,
        noise_vocab_size: int = 0,
    ) -> None:
        super().__init__(vocab_size, seq_len, num_train, num_test)
        check_noise(frac_noise, noise_vocab_size)
        check_multi_query(multi_query)
        if k_motif_size < 1 or v_motif_size < 1:
            raise ValueError(
                f"task.k_motif_size={k_motif_size} and task.v_motif_size={v_motif_size} "
                "must be at least 1"
            )
        longest = k_motif_size + v_motif_size
        if seq_len < 3 * longest:
            raise ValueError(
                f"task.seq_len={seq_len} is too short for pairs of up to {longest} tokens; "
                f"it must be at least {3 * longest}"
            )
        self.k_motif_size, self.v_motif_size = k_motif_size, v_motif_size
        self.multi_query, self.frac_noise = multi_query, frac_noise
        self.noise_vocab_size = noise_vocab_size
        self.special = 1 if multi_query else 2
        self.n_keys, self.n_values = halves(
            vocab_size, self.special, noise_vocab_size, least=max(k_motif_size, v_motif_size)
        )

    @property
    def chance(self) -> float:
        return 1 / self.n_values

    def draw(self, count: int, split: Split, rng: np.random.Generator) -> Examples:
        longest = self.k_motif_size + self.v_motif_size
        smallest_key = 1 if split == "train" else self.k_motif_size
        keys, values = (0, self.n_keys), (self.n_keys, self.n_values)  # first id, number of ids
        key = _motifs(rng, (count, 1), smallest_key, self.k_motif_size, *keys)
        value = _motifs(rng, (count, 1), 1, self.v_motif_size, *values)
        probe = key.size + value.size
        end = self.seq_len - probe - longest  # no pair starts here or later, so that all fits
        # A pair starts within the next `longest` steps, so the probe is planted before the end.
        planted_from = rng.integers(end - longest + 1)

        slots = self.seq_len // (smallest_key + 1)
        noisy = rng.random((count, slots)) < self.frac_noise
        pair_keys = _motifs(rng, (count, slots), smallest_key, self.k_motif_size, *keys)
        drawn_values = _motifs(rng, (count, slots), 1, self.v_motif_size, *values)
        codes = np.where(noisy, -1 - np.arange(slots), pair_keys.codes(self.n_keys))
        first = _first_equal(codes)  # a key keeps the value of its first appearance
        is_probe = codes == key.codes(self.n_keys)
        pair_values = value.where(is_probe, drawn_values.take(first))

        length = pair_keys.size + pair_values.size
        start = length.cumsum(1) - length
        shown_before = np.cumsum(is_probe, axis=1) - is_probe > 0
        due = start >= planted_from
        planted_at = due.argmax(1)[:, None]
        plant = ~np.take_along_axis(shown_before, planted_at, axis=1)
        after_plant = plant & (np.arange(slots) >= planted_at)
        plant_start = np.take_along_axis(start, planted_at, axis=1)
        start = start + after_plant * probe
        used = start < end
        body = (used * length).sum(1, keepdims=True) + plant * probe
        repeated = (first < np.arange(slots)) | (is_probe & after_plant)

        sheet = Sheet(count, self.seq_len + 1, pad=self.vocab_size - self.special)
        offset = self.seq_len + 1 - body - probe - (self.special - 1)
        pairs = used & ~noisy
        sheet.write(offset + start, pair_keys, pairs)
        scored = pairs & repeated & self.multi_query
        sheet.write(offset + start + pair_keys.size, pair_values, pairs, scored)
        noise = rng.integers(max(self.noise_vocab_size, 1), size=(count, slots, longest))
        noise_motifs = Motifs(self.n_keys + self.n_values + noise, length)
        sheet.write(offset + start, noise_motifs, used & noisy)
        for at, here, last in ((offset + plant_start, plant, False), (-probe, plant | True, True)):
            at = at + (self.seq_len + 1) * last
            sheet.write(at, key, here)
            sheet.write(at + key.size, value, here, here & last)
        if not self.multi_query:
            np.put_along_axis(sheet.tokens, self.seq_len - probe, self.vocab_size - 1, axis=1)
        return shifted(sheet.tokens, sheet.scored, split)


class Motifs(NamedTuple):
    """Tuples of distinct tokens: the first `size` of the last axis count."""

    tokens: Int64[ndarray, "b s m"]
    size: Int64[ndarray, "b s"]

    def codes(self, n_tokens: int) -> Int64[ndarray, "b s"]:
        """A number for each tuple: the same for equal tuples, different for different ones."""
        used = np.arange(self.tokens.shape[-1]) < self.size[..., None]
        digits = np.where(used, self.tokens + 1, 0)
        return digits @ (n_tokens + 1) ** np.arange(self.tokens.shape[-1])

    def take(self, slot: Int64[ndarray, "b s"]) -> "Motifs":
        tokens = np.take_along_axis(self.tokens, slot[..., None], axis=1)
        return Motifs(tokens, np.take_along_axis(self.size, slot, axis=1))

    def where(self, condition: Bool[ndarray, "b s"], other: "Motifs") -> "Motifs":
        """These motifs (broadcast) where the condition holds, and `other` elsewhere."""
        tokens = np.where(condition[..., None], self.tokens, other.tokens)
        return Motifs(tokens, np.where(condition, self.size, other.size))


class Sheet:
    """Sequences being written, and which of their tokens are scored."""

    def __init__(self, count: int, width: int, pad: int) -> None:
        self.tokens = np.full((count, width), pad)
        self.scored = np.full((count, width), IGNORE)

    def write(
        self,
        start: Int64[ndarray, "b s"],
        motifs: Motifs,
        here: Bool[ndarray, "b s"],
        scored: Bool[ndarray, "b s"] | None = None,
    ) -> None:
        """Write motifs at `start` where `here` is true, and score them where `scored` is."""
        for i in range(motifs.tokens.shape[-1]):
            row, slot = np.nonzero(here & (motifs.size > i))
            token, place = motifs.tokens[row, slot, i], start[row, slot] + i
            self.tokens[row, place] = token
            if scored is not None:
                is_scored = scored[row, slot]
                self.scored[row[is_scored], place[is_scored]] = token[is_scored]


def _motifs(
    rng: np.random.Generator,
    shape: tuple[int, int],
    smallest: int,
    largest: int,
    first_id: int,
    n_ids: int,
) -> Motifs:
    """Random sizes from `smallest` to `largest`, and as many distinct ids."""
    size = rng.integers(smallest, largest + 1, size=shape)
    chosen: list[ndarray] = []
    for i in range(largest):
        # Draw a rank among the ids not chosen yet, then step over each chosen id up to it.
        token = rng.integers(n_ids - i, size=shape)
        for earlier in np.sort(np.stack(chosen), axis=0) if chosen else []:
            token += token >= earlier
        chosen.append(token)
    return Motifs(first_id + np.stack(chosen, axis=-1), size)


def _first_equal(codes: Int64[ndarray, "b s"]) -> Int64[ndarray, "b s"]:
    """For each slot, the first slot of its row with the same code."""
    order = codes.argsort(axis=1, kind="stable")
    ordered = np.take_along_axis(codes, order, axis=1)
    new = np.ones_like(ordered, dtype=bool)
    new[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    run_start = np.maximum.accumulate(np.where(new, np.arange(codes.shape[1]), 0), axis=1)
    first = np.empty_like(order)
    np.put_along_axis(first, order, np.take_along_axis(order, run_start, axis=1), axis=1)
    return first
