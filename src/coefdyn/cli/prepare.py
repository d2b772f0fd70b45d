"""`coefdyn prepare`: turns WikiText into tokens."""

from collections.abc import Sequence

from coefdyn.config.compose import raw
from coefdyn.tasks.text.prepare import prepare


def run(arguments: Sequence[str]) -> int:
    return prepare(raw(arguments, "prepare_wikitext"))
