"""Verdicts for the README and the documentation: in words, and as a Markdown table."""

from collections import Counter
from collections.abc import Collection, Sequence

from coefdyn.paper.forest import deciding, level_of, numbers
from coefdyn.paper.looks import VERDICTS
from coefdyn.paper.verdicts import Judged

WAITING = "not enough runs"


def in_short(rows: Sequence[Judged], stems: Collection[str]) -> str:
    """Verdicts of some experiments, such as "2 yes, 1 no, 3 no runs"."""
    counts = Counter[str](row.judgement.verdict for row in rows if row.stem in stems)
    words = {name: word.replace("\n", " ") for name, (word, _) in VERDICTS.items()}
    return ", ".join(f"{counts[name]} {word}" for name, word in words.items() if counts[name])


def markdown(rows: Sequence[Judged]) -> str:
    """A line per claim with enough runs, with the effect that decides it."""
    lines = ["| claim | verdict | effect [interval]; region |", "|---|---|---|"]
    for row in rows:
        verdict, effects = row.judgement.verdict, row.judgement.effects
        if verdict == WAITING:
            continue
        level = level_of(verdict, len(effects), row.claim.any_of)
        chosen = deciding(effects, level, row.claim.any_of)
        name = f"{chosen.name}: " if chosen is not None and len(effects) > 1 else ""
        effect = f"{name}{numbers(chosen, level)}" if chosen is not None else "one function"
        lines.append(f"| {row.claim.name}: {row.claim.statement} | {verdict} | {effect} |")
    return "\n".join(lines)
