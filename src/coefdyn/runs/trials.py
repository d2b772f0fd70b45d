"""Trials of kernels: outcomes are kept in a file, and the first loss is compared."""

import json
import logging
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from coefdyn.errors import ConfigError
from coefdyn.mixer.backends import trial
from coefdyn.mixer.backends.trial import KNOWN, Outcome
from coefdyn.model.coefficient_statistics import own_forms
from coefdyn.model.model import SequenceModel, mixers_of
from coefdyn.runs.record import write_atomically

log = logging.getLogger(__name__)


def cache_file() -> Path:
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "coefdyn" / "trials.json"


def recall_trials() -> None:
    """Read the outcomes of earlier processes. A file that cannot be read is made anew."""
    with suppress(OSError, ValueError, TypeError, AttributeError):
        outcomes: dict[str, Any] = json.loads(cache_file().read_text())
        known = {key: Outcome(**outcome) for key, outcome in outcomes.items()}
        KNOWN.update({key: outcome for key, outcome in known.items() if key not in KNOWN})


def keep_trials() -> None:
    """Write what is known now. Without a writable home, the next process tries again."""
    if not KNOWN:
        return
    recall_trials()  # another process may have added some
    with suppress(OSError):
        cache_file().parent.mkdir(parents=True, exist_ok=True)
        outcomes = {key: asdict(outcome) for key, outcome in sorted(KNOWN.items())}
        write_atomically(cache_file(), json.dumps(outcomes, indent=1))


def trials_of(model: SequenceModel) -> dict[str, dict[str, Any]]:
    """The outcomes of a model's trials, by kernel: of layers that differ, the worst."""
    worst: dict[str, Outcome] = {}
    for mixer in mixers_of(model):
        for name, outcome in mixer.trials.items():
            if name not in worst or (outcome.reason and not worst[name].reason):
                worst[name] = outcome
    return {name: asdict(outcome) for name, outcome in worst.items()}


@torch.no_grad()
def check_first_loss(model: SequenceModel, loss: Callable[[], Tensor]) -> None:
    """Compare the loss of a batch by kernels with that by our own forms.

    A trial tries layers on random inputs; this is the whole model on its data. If they differ, a
    kernel of auto's is given up, and one that was named is an error.
    """
    mixers = [mixer for mixer in mixers_of(model) if mixer.form_used in mixer.trials]
    if not mixers:
        return
    found = loss().item()
    with own_forms(model):
        own = loss().item()
    half = torch.is_autocast_enabled(next(model.parameters()).device.type)
    if abs(found - own) <= (trial.HALF if half else trial.FULL) * abs(own):
        return
    for mixer in mixers:
        name = str(mixer.form_used)
        why = f"the loss of the first batch is {found:.4g} by {name}, and {own:.4g} by our own form"
        if mixer.backend == name:
            raise ConfigError(f"model.backend={name} cannot be used: {why}; use auto")
        log.warning("%s is not used: %s", name, why)
        mixer.trials[name] = replace(mixer.trials[name], wrong=why)
        mixer.may_use_adapters = False
