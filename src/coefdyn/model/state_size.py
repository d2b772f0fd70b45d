"""How much a model keeps while it reads token by token: a state, or all keys and values so far."""

import torch

from coefdyn.mixer.sequence_mixer import MixerState, SequenceMixer
from coefdyn.model.model import SequenceModel

BYTES = 4  # of a number, in float32


def state_bytes(model: SequenceModel, length: int) -> int | None:
    """Bytes that it keeps after `length` tokens, all layers together; None with a foreign mixer.

    A design with a recurrent form keeps its state, any other the keys and values of every token.
    """
    mixers = [block.mixer for block in model.blocks]
    sizes = [_size(mixer, length) for mixer in mixers if isinstance(mixer, SequenceMixer)]
    return BYTES * sum(sizes) if len(sizes) == len(mixers) else None


def _size(mixer: SequenceMixer, length: int) -> int:
    weight = mixer.project.weight
    token = weight.new_zeros(1, 1, weight.shape[1])
    if mixer.design.recurrence_obstacle is None:
        return _numbers(mixer.step(token, None)[1])
    projection = mixer.project(token)
    past = mixer.preprocess.remember(projection, None).numel()
    _, keys, values, *_ = mixer.splits  # of one token
    return past + length * (keys + values)


def _numbers(state: MixerState) -> int:
    design = state.design
    kept = [state.past, *design.sums, design.key_unit, design.frame.turned, design.frame.added]
    return sum(x.numel() for x in kept if isinstance(x, torch.Tensor))
