"""The report: verdicts, figures and every grid point, on one page that needs no network."""

import base64
import io
import json
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from string import Template
from typing import Any

import pandas as pd

from coefdyn.errors import ConfigError
from coefdyn.paper import experiment_of, experiments
from coefdyn.results.claim import Judgement
from coefdyn.results.experiment import Experiment
from coefdyn.results.files import TableFolder
from coefdyn.results.tables import AXES, TUNED, axes_of

TEMPLATE = Path(__file__).with_name("report.html")
SHOWN = ["accuracy", "accuracy_std", "seeds", "accuracy_macro", "test/perplexity", "near_zero",
         "near_one", "guarded_rows", *TUNED, "lr_at_edge", "runs", "missing", "diverged",
         "chance"]  # fmt: skip
OF_A_RUN = ["seed", *TUNED, "status", "accuracy", "accuracy_macro", "accuracy_best",
            "test/perplexity", "near_zero", "run_id"]  # fmt: skip

Verdicts = Mapping[str, Sequence[Mapping[str, str]]]  # rows of judge, by scale


def drawable(folder: TableFolder) -> list[Experiment]:
    """The experiments whose tables are all there: the paper's, then any other."""
    others = [experiment_of(stem) for stem in folder.stems() if stem not in experiments()]
    return [e for e in (*experiments().values(), *others) if folder.has(e.stem, *e.needs)]


def judge(folder: TableFolder) -> list[dict[str, str]]:
    """Every claim against the tables of one scale."""
    tables: dict[str, pd.DataFrame] = {}
    for experiment in experiments().values():
        if folder.has(experiment.stem):
            tables |= folder.tables_of(experiment)
    rows, frozen = [], folder.decisions()
    for claim in (claim for e in experiments().values() for claim in e.claims):
        judgement = claim.judge(tables)
        if claim.name in frozen:
            kept = frozen[claim.name]
            words = f"decided at {kept['seeds']} seeds: {kept['statistic']}"
            judgement = Judgement(kept["verdict"], words, judgement.effects)
        narrowed = dict.fromkeys(word for stem in claim.needs for word in folder.narrowed(stem))
        rows.append(
            {
                "scale": folder.scale,
                "claim": claim.name,
                "statement": claim.statement,
                "verdict": judgement.verdict,
                "statistic": judgement.statistic + f"; with {' '.join(narrowed)}" * bool(narrowed),
                "place": claim.place,
            }
        )
    return rows


def page(folders: Sequence[TableFolder]) -> str:
    verdicts = {folder.scale: judge(folder) for folder in folders}
    shown = [(folder, experiment) for folder in folders for experiment in drawable(folder)]
    return Template(TEMPLATE.read_text()).substitute(
        verdicts=_verdict_table(verdicts),
        counts=_counts(verdicts),
        figures="\n".join(_figure(folder, experiment) for folder, experiment in shown),
        data=json.dumps(_points(shown)).replace("</", "<\\/"),  # which would end its script
    )


def _counts(verdicts: Verdicts) -> str:
    texts = []
    for scale, rows in verdicts.items():
        numbers = pd.Series([row["verdict"] for row in rows]).value_counts()
        words = ", ".join(f"{number} {verdict}" for verdict, number in numbers.items())
        texts.append(f"<b>scale={escape(scale)}</b>: {words}{_by_chance(rows)}")
    return "; ".join(texts)


def _by_chance(rows: Sequence[Mapping[str, str]]) -> str:
    """Looks together are wrong with a probability of at most 5 % (tests/results/test_level.py)."""
    decided = sum(row["verdict"] in ("reproduced", "not reproduced") for row in rows)
    wrong = 0.05 * decided
    return f" (chance alone makes up to {wrong:.1f} of these {decided} wrong)" * bool(decided)


def _verdict_table(verdicts: Verdicts) -> str:
    head = "".join(f"<th>{escape(scale)}</th>" for scale in verdicts)
    lines = [f"<tr><th>claim</th>{head}<th>where</th></tr>"]
    for rows in zip(*verdicts.values(), strict=True):
        cells = "".join(
            f'<td class="{row["verdict"].replace(" ", "-")}" '
            f'data-label="{escape(row["scale"])}"><b>{escape(row["verdict"])}</b>'
            f"<br>{escape(row['statistic'])}</td>"
            for row in rows
        )
        claim = f"<b>{escape(rows[0]['claim'])}</b><br>{escape(rows[0]['statement'])}"
        place = f'<td data-label="where">{escape(rows[0]["place"])}</td>'
        lines.append(f"<tr><td>{claim}</td>{cells}{place}</tr>")
    return "\n".join(lines)


def _figure(folder: TableFolder, experiment: Experiment) -> str:
    stem, scale, caption = experiment.stem, folder.scale, experiment.caption
    buffer = io.BytesIO()
    folder.draw(experiment).savefig(buffer, format="png", dpi=130)
    picture = base64.b64encode(buffer.getvalue()).decode()
    return (
        f'<figure id="{scale}-{stem}"><h3>{stem} <small>scale={scale}</small></h3>'
        f'<img src="data:image/png;base64,{picture}" alt="{escape(caption, quote=True)}">'
        f"<figcaption>{escape(caption)}<br><small>{_provenance(folder, experiment)}</small>"
        "</figcaption></figure>"
    )


def _provenance(folder: TableFolder, experiment: Experiment) -> str:
    stem = experiment.stem
    if experiment.columns:  # timings, which have no records
        return escape("; ".join(dict.fromkeys(folder.read(stem, experiment.columns)["device"])))
    about = folder.provenance(stem)
    if not about:
        return ""
    commits = ", ".join(
        f"{(c['commit'] or 'no commit')[:10]}{' with changes' * bool(c['dirty'])}"
        for c in about["commits"]
    )
    devices = ", ".join(
        f"{d['type']} {d['name']}, {d['threads']} threads" for d in about["devices"]
    )
    torch = ", ".join(sorted({v["torch"] for v in about["versions"]}))
    lacking = f", {about['missing']} missing" * bool(about["missing"])
    narrowed = f" (with {' '.join(folder.narrowed(stem))})" * bool(folder.narrowed(stem))
    runs = f"{about['runs']} runs{narrowed}{lacking}, {about['hours']:g} h in all"
    return escape(f"{runs}; commit {commits}; torch {torch}; {devices}")


def _points(shown: Sequence[tuple[TableFolder, Experiment]]) -> dict[str, Any]:
    """Rows of the page's table, each with its runs; what any grid varies is a column."""
    tables = [(folder, e.stem, folder.read(e.stem)) for folder, e in shown if not e.columns]
    axes = list(dict.fromkeys([*AXES, *(n for *_, table in tables for n in axes_of(table))]))
    columns, rows = ["scale", "experiment", *axes, *SHOWN], []
    for folder, stem, table in tables:
        names = axes_of(table)
        runs_of = folder.read(f"{stem}_runs").groupby(names, dropna=False)
        groups = {tuple(map(str, key)): group for key, group in runs_of}  # a blank equals a blank
        for point in table.assign(experiment=stem).to_dict("records"):
            group = groups.get(tuple(str(point[name]) for name in names))
            if group is None:
                raise ConfigError(f"{folder.path(stem)} and its _runs disagree; make them again")
            runs = [[_plain(v) for v in row] for row in group[OF_A_RUN].to_numpy().tolist()]
            rows.append({"cells": [_plain(point.get(n)) for n in columns], "runs": runs})
    return {"columns": columns, "run_columns": OF_A_RUN, "points": rows}


def _plain(value: Any) -> Any:
    """For JSON: no NaN."""
    return None if isinstance(value, float) and value != value else value
