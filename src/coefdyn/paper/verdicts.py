"""Judges every claim by the tables of one scale."""

from dataclasses import dataclass

import pandas as pd

from coefdyn.paper import experiments
from coefdyn.results.claim import Claim, Judgement
from coefdyn.results.files import TableFolder

DESIGN = ("reading=", "model")  # overrides that change which designs are one function


@dataclass(frozen=True)
class Judged:
    """A claim and its judgement at one scale. `stem`: the experiment that makes the claim."""

    scale: str
    stem: str
    claim: Claim
    judgement: Judgement
    seeds: int | None = None  # at which action=decide froze the verdict

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
    """All claims, in the paper's order. Verdicts that `action=decide` has reached stay."""
    tables: dict[str, pd.DataFrame] = {}
    for experiment in experiments().values():
        if folder.has(experiment.stem):
            tables |= folder.tables_of(experiment)
    frozen, rows = folder.decisions(), []
    for stem, claim in ((e.stem, claim) for e in experiments().values() for claim in e.claims):
        narrowed = dict.fromkeys(
            override for stem in claim.needs for override in folder.narrowed(stem)
        )
        of_design = [
            override for override in narrowed if override.startswith(DESIGN) and "," not in override
        ]
        judgement = claim.judge(tables, *of_design)
        statistic = judgement.statistic
        if claim.name in frozen:
            decision = frozen[claim.name]
            statistic = f"decided at {decision['seeds']} seeds: {decision['statistic']}"
            judgement = Judgement(decision["verdict"], statistic, judgement.effects)
        statistic += f"; with {' '.join(narrowed)}" * bool(narrowed)
        judged = Judgement(judgement.verdict, statistic, judgement.effects)
        seeds = frozen[claim.name]["seeds"] if claim.name in frozen else None
        rows.append(Judged(folder.scale, stem, claim, judged, seeds))
    return rows
