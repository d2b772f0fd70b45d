"""Every claim judged by the tables of one scale."""

from dataclasses import dataclass

import pandas as pd

from coefdyn.paper import experiments
from coefdyn.results.claim import Claim, Judgement
from coefdyn.results.files import TableFolder

DESIGN = ("reading=", "model")  # overrides under which other designs may be one function


@dataclass(frozen=True)
class Judged:
    """`stem`: the experiment that makes the claim."""

    scale: str
    stem: str
    claim: Claim
    judgement: Judgement
    seeds: int | None = None  # at which action=decide has frozen it

    def row(self) -> dict[str, str]:
        return {
            "scale": self.scale,
            "claim": self.claim.name,
            "statement": self.claim.statement,
            "verdict": self.judgement.verdict,
            "statistic": self.judgement.statistic,
            "place": self.claim.place,
        }


def judge(folder: TableFolder) -> list[Judged]:
    """In the paper's order. What `action=decide` has reached stays."""
    tables: dict[str, pd.DataFrame] = {}
    for experiment in experiments().values():
        if folder.has(experiment.stem):
            tables |= folder.tables_of(experiment)
    frozen, found = folder.decisions(), []
    for stem, claim in ((e.stem, claim) for e in experiments().values() for claim in e.claims):
        narrowed = dict.fromkeys(word for stem in claim.needs for word in folder.narrowed(stem))
        of_design = [word for word in narrowed if word.startswith(DESIGN) and "," not in word]
        judgement = claim.judge(tables, *of_design)
        words = judgement.statistic
        if claim.name in frozen:
            kept = frozen[claim.name]
            words = f"decided at {kept['seeds']} seeds: {kept['statistic']}"
            judgement = Judgement(kept["verdict"], words, judgement.effects)
        words += f"; with {' '.join(narrowed)}" * bool(narrowed)
        judged = Judgement(judgement.verdict, words, judgement.effects)
        seeds = frozen[claim.name]["seeds"] if claim.name in frozen else None
        found.append(Judged(folder.scale, stem, claim, judged, seeds))
    return found
