"""The report: verdicts, figures and every grid point, on one page that needs no network."""

import base64
import io
import json
from collections.abc import Sequence
from html import escape
from pathlib import Path
from string import Template
from typing import Any

import pandas as pd

from coefdyn.errors import ConfigError
from coefdyn.paper.claims import CLAIMS
from coefdyn.results.files import LENGTHS, Shelf
from coefdyn.results.tables import AXES, TUNED

TEMPLATE = Path(__file__).with_name("report.html")
SHOWN = ["accuracy", "accuracy_macro", "test/perplexity", "near_zero", "near_one",
         "guarded_rows", *TUNED, "lr_at_edge", "runs", "missing", "diverged", "chance"]  # fmt: skip
OF_A_RUN = [*TUNED, "status", "accuracy", "accuracy_macro", "accuracy_best", "test/perplexity",
            "near_zero", "run_id"]  # fmt: skip


def judge(shelf: Shelf) -> list[dict[str, str]]:
    """Every claim against the tables of one scale."""
    tables = shelf.read_all()
    rows = []
    for claim in CLAIMS:
        found = claim.judge(tables)
        narrowed = dict.fromkeys(word for stem in claim.needs for word in shelf.narrowed(stem))
        rows.append(
            {
                "scale": shelf.scale,
                "claim": claim.name,
                "statement": claim.statement,
                "verdict": found.verdict,
                "statistic": found.statistic + f"; with {' '.join(narrowed)}" * bool(narrowed),
                "falsified by": claim.falsified_by,
            }
        )
    return rows


def page(shelves: Sequence[Shelf]) -> str:
    verdicts = {shelf.scale: judge(shelf) for shelf in shelves}
    points = [point for shelf in shelves for point in _points(shelf)]
    columns = ["scale", "experiment", *AXES, *SHOWN]
    data = json.dumps({"columns": columns, "run_columns": OF_A_RUN, "points": points})
    return Template(TEMPLATE.read_text()).substitute(
        verdicts=_verdict_table(verdicts),
        counts=_counts(verdicts),
        figures="\n".join(_figure(shelf, stem) for shelf in shelves for stem in shelf.stems()),
        data=data.replace("</", "<\\/"),  # which would end the script that holds it
    )


def _counts(verdicts: dict[str, list[dict[str, str]]]) -> str:
    said = []
    for scale, rows in verdicts.items():
        found = pd.Series([row["verdict"] for row in rows]).value_counts()
        words = ", ".join(f"{number} {verdict}" for verdict, number in found.items())
        said.append(f"<b>scale={escape(scale)}</b>: {words}")
    return "; ".join(said)


def _verdict_table(verdicts: dict[str, list[dict[str, str]]]) -> str:
    scales = list(verdicts)
    head = "".join(f"<th>{escape(scale)}</th>" for scale in scales)
    lines = [f"<tr><th>claim</th>{head}<th>falsified by</th></tr>"]
    for rows in zip(*verdicts.values(), strict=True):
        cells = "".join(
            f'<td class="{row["verdict"].replace(" ", "-")}" '
            f'data-label="{escape(row["scale"])}"><b>{escape(row["verdict"])}</b>'
            f"<br>{escape(row['statistic'])}</td>"
            for row in rows
        )
        claim = f"<b>{escape(rows[0]['claim'])}</b><br>{escape(rows[0]['statement'])}"
        doubt = f'<td data-label="falsified by">{escape(rows[0]["falsified by"])}</td>'
        lines.append(f"<tr><td>{claim}</td>{cells}{doubt}</tr>")
    return "\n".join(lines)


def _figure(shelf: Shelf, stem: str) -> str:
    how, figure = shelf.draw(stem)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=130)
    picture = base64.b64encode(buffer.getvalue()).decode()
    return (
        f'<figure id="{shelf.scale}-{stem}"><h3>{stem} <small>scale={shelf.scale}</small></h3>'
        f'<img src="data:image/png;base64,{picture}" alt="{escape(how.caption, quote=True)}">'
        f"<figcaption>{escape(how.caption)}<br><small>{_provenance(shelf, stem)}</small>"
        "</figcaption></figure>"
    )


def _provenance(shelf: Shelf, stem: str) -> str:
    if stem == LENGTHS:  # timings, which have no records
        return escape("; ".join(dict.fromkeys(shelf.read(stem)["device"])))
    found = shelf.provenance(stem)
    if not found:
        return ""
    commits = ", ".join(
        f"{(c['commit'] or 'no commit')[:10]}{' with changes' * bool(c['dirty'])}"
        for c in found["commits"]
    )
    devices = ", ".join(
        f"{d['type']} {d['name']}, {d['threads']} threads" for d in found["devices"]
    )
    torch = ", ".join(sorted({v["torch"] for v in found["versions"]}))
    lacking = f", {found['missing']} missing" * bool(found["missing"])
    narrowed = f" (with {' '.join(shelf.narrowed(stem))})" * bool(shelf.narrowed(stem))
    runs = f"{found['runs']} runs{narrowed}{lacking}, {found['hours']:g} h in all"
    return escape(f"{runs}; commit {commits}; torch {torch}; {devices}")


def _points(shelf: Shelf) -> list[dict[str, Any]]:
    """Rows of the page's table, each with its runs."""
    rows = []
    for stem in shelf.stems():
        if stem == LENGTHS:
            continue
        runs = shelf.read(f"{stem}_runs")
        groups = dict(iter(runs.groupby(AXES, dropna=False)))
        for point in shelf.read(stem).to_dict("records"):
            group = groups.get(tuple(point[name] for name in AXES))
            if group is None:
                raise ConfigError(f"{shelf.path(stem)} and its _runs disagree; make them again")
            rows.append(
                {
                    "cells": [shelf.scale, stem, *(_plain(point[n]) for n in (*AXES, *SHOWN))],
                    "runs": [
                        [_plain(v) for v in row] for row in group[OF_A_RUN].to_numpy().tolist()
                    ],
                }
            )
    return rows


def _plain(value: Any) -> Any:
    """For JSON: no NaN."""
    return None if isinstance(value, float) and value != value else value
