"""Verdicts for README and documentation: in words, and as a table in Markdown."""

from collections import Counter
from collections.abc import Collection, Sequence

from coefdyn.paper.forest import deciding, level_of, numbers
from coefdyn.paper.verdicts import Judged

ORDER = {"reproduced": "reproduced", "not reproduced": "not reproduced",
         "inconclusive": "inconclusive", "not decidable at this scale": "not decidable",
         "invariant by construction": "invariant"}  # fmt: skip
WAITING = "not enough runs"


def in_short(rows: Sequence[Judged], stems: Collection[str]) -> str:
    """How the claims of some experiments stand: "2 reproduced, 1 inconclusive; 3 wait for runs"."""
    found = Counter[str](row.judgement.verdict for row in rows if row.stem in stems)
    words = ", ".join(f"{found[name]} {short}" for name, short in ORDER.items() if found[name])
    waiting = f"{found[WAITING]} wait for runs" if found[WAITING] else ""
    return "; ".join(part for part in (words, waiting) if part)


def markdown(rows: Sequence[Judged]) -> str:
    """A line per claim that could be judged, with the effect that decides it."""
    lines = ["| claim | verdict | effect [interval]; region |", "|---|---|---|"]
    for row in rows:
        verdict, effects = row.judgement.verdict, row.judgement.effects
        if verdict == WAITING:
            continue
        level = level_of(verdict, len(effects), row.claim.any_of)
        chosen = deciding(effects, level, row.claim.any_of)
        several = f"{chosen.name}: " if chosen is not None and len(effects) > 1 else ""
        words = f"{several}{numbers(chosen, level)}" if chosen is not None else "one function"
        lines.append(f"| {row.claim.name}: {row.claim.statement} | {verdict} | {words} |")
    return "\n".join(lines)
