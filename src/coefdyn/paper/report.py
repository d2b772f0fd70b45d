"""The report: verdicts, principles, figures and all grid points, on one page that works offline."""

import base64
import io
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from string import Template
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from coefdyn.errors import ConfigError
from coefdyn.paper import experiment_of, experiments, measured
from coefdyn.paper.forest import deciding, drawing, level_of, numbers
from coefdyn.paper.sections import SECTIONS, Section
from coefdyn.paper.space import architectures
from coefdyn.paper.space import draw as draw_space
from coefdyn.paper.verdicts import Judged, judge
from coefdyn.results.experiment import Experiment
from coefdyn.results.files import TableFolder
from coefdyn.results.tables import AXES, TUNED, axes_of

TEMPLATE = Path(__file__).with_name("report.html")
SHOWN = ["accuracy", "accuracy_std", "seeds", "accuracy_macro", "test/perplexity", "near_zero",
         "near_one", "guarded_rows", *TUNED, "lr_at_edge", "runs", "missing", "diverged",
         "chance"]  # fmt: skip
OF_A_RUN = ["seed", *TUNED, "status", "accuracy", "accuracy_macro", "accuracy_best",
            "test/perplexity", "near_zero", "run_id"]  # fmt: skip
CURVES = ("test/accuracy", "train/loss")  # the first of these that a run has is drawn

SYMBOLS = {
    r"\b([Abhkqyv])_(ij|[tij])\b": r"\1<sub>\2</sub>",
    r"\bphi\b": "&phi;",
    r"\bpsi\b": "&psi;",
    r"\beta(_i)?\b": "&eta;",
    r"\balpha(_ij)?\b": "&alpha;",
    r"\bsqrt\(n\)": "&radic;n",
    r"\bc\^i\b": "c<sup>i</sup>",
    r"\bL\^2\b": "L<sup>2</sup>",
}

JUDGED = ("reproduced", "not reproduced", "inconclusive")

Verdicts = Mapping[str, Sequence[Judged]]  # by scale


def drawable(folder: TableFolder) -> list[Experiment]:
    """The experiments whose tables all exist: the declared ones, then any other."""
    undeclared = [experiment_of(stem) for stem in folder.stems() if stem not in experiments()]
    return [e for e in (*experiments().values(), *undeclared) if folder.has(e.stem, *e.needs)]


def page(folders: Sequence[TableFolder]) -> str:
    verdicts = {folder.scale: judge(folder) for folder in folders}
    shown = [(folder, experiment) for folder in folders for experiment in drawable(folder)]
    in_sections = {stem for section in SECTIONS for stem in section.stems}
    unplaced = [(folder, e) for folder, e in shown if e.stem not in in_sections]
    sections = [_section(section, verdicts, shown) for section in SECTIONS]
    contents = [(section.key, section.title) for section in SECTIONS]
    if unplaced:
        figures = "\n".join(_figure(folder, experiment) for folder, experiment in unplaced)
        sections.append(f'<section id="others"><h2>Other experiments</h2>{figures}</section>')
        contents.append(("others", "Other experiments"))
    if on_gpus := measured.section(folders[0].results):
        sections.append(on_gpus)
        contents.append(("measured", "Measured on"))
    return Template(TEMPLATE.read_text()).substitute(
        counts=_counts(verdicts),
        forest=_forest(verdicts),
        contents="\n".join(
            f'<li><a href="#{key}">{_symbols(title)}</a></li>' for key, title in contents
        ),
        space=_space(),
        sections="\n".join(sections),
        data=json.dumps(_points(shown)).replace("</", "<\\/"),  # "</" would end the script
    )


def _counts(verdicts: Verdicts) -> str:
    texts = []
    for scale, rows in verdicts.items():
        counts = pd.Series([row.judgement.verdict for row in rows]).value_counts()
        words = ", ".join(f"{number} {verdict}" for verdict, number in counts.items())
        texts.append(f"<b>scale={escape(scale)}</b>: {words}{_by_chance(rows)}")
    return "; ".join(texts)


def _by_chance(rows: Sequence[Judged]) -> str:
    """How many verdicts chance alone makes wrong: at most 5 % of those judged, over all looks.

    This error rate is tested in test_level_by_claim.py.
    """
    judged = sum(row.judgement.verdict in JUDGED for row in rows)
    words = f" ({judged} could be judged; chance alone makes at most {0.05 * judged:.2g} of them"
    return f"{words} wrong, on average)" * bool(judged)


def _space() -> str:
    """Tables 1 and 2 of the paper, from the traits of the classes that are trained."""
    names = ["architecture", "A_t", "b_j", "phi", "eta", "cheap recurrence", "outputs"]
    head = "".join(f"<th>{_symbols(name)}</th>" for name in names)
    lines = [
        "".join(f"<td>{escape(word)}</td>" for word in (row.name, *row.slots))
        + f"<td>{'yes' if row.recurrent else 'no'}</td><td>{row.output}</td>"
        for row in architectures()
    ]
    table = "".join(f"<tr>{line}</tr>" for line in (head, *lines))
    caption = (
        "What a step can be, made of two values (dots) by queries and keys at random: between "
        "them, in their cone (grey), on the line through them, or anywhere. It follows from phi "
        "and eta."
    )
    return (
        f'<div class="scroll"><table>{table}</table></div><figure>{_picture(draw_space(), caption)}'
        f"<figcaption>{_words(caption)}</figcaption></figure>"
    )


def _picture(figure: Figure, caption: str) -> str:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=130)
    data = base64.b64encode(buffer.getvalue()).decode()
    return f'<img src="data:image/png;base64,{data}" alt="{escape(caption, quote=True)}">'


def _class(verdict: str) -> str:
    return verdict.replace(" ", "-")


def _forest(verdicts: Verdicts) -> str:
    """A row per claim, a cell per scale. Claims without runs at any scale share the last row."""
    head = "".join(f"<th>{escape(scale)}</th>" for scale in verdicts)
    lines, waiting = [f"<thead><tr><th>claim</th>{head}</tr></thead><tbody>"], []
    for rows in zip(*verdicts.values(), strict=True):
        claim, link = rows[0].claim, f'<a href="#{_place_of(rows[0].stem)}">'
        if all(row.judgement.verdict == "not enough runs" for row in rows):
            waiting.append(f"{link}{_words(claim.name)}</a>")
            continue
        name = f"<b>{_words(claim.name)}</b><br>{_words(claim.statement)}"
        lines.append(f"<tr><td>{link}{name}</a></td>{''.join(map(_forest_cell, rows))}</tr>")
    if waiting:
        text = f'<b class="verdict">not enough runs</b> at any scale yet: {"; ".join(waiting)}'
        lines.append(
            f'<tr class="not-enough-runs"><td colspan="{len(verdicts) + 1}">{text}</td></tr>'
        )
    return "\n".join([*lines, "</tbody>"])


def _words(text: str) -> str:
    """Plain text as HTML, with the symbols of the equation."""
    return _symbols(escape(text))


def _symbols(html: str) -> str:
    for pattern, symbol in SYMBOLS.items():
        html = re.sub(pattern, symbol, html)
    return html


def _forest_cell(row: Judged) -> str:
    verdict, effects = row.judgement.verdict, row.judgement.effects
    level = level_of(verdict, len(effects), row.claim.any_of)
    chosen = deciding(effects, level, row.claim.any_of)
    words = f'<b class="verdict">{escape(verdict)}</b>'
    if row.seeds:
        words += f" at {row.seeds} seeds; by now:"
    if chosen is not None:
        several = f" <small>{_words(chosen.name)}, of {len(effects)}</small>" * (len(effects) > 1)
        words = f"{drawing(chosen, level)}<br>{words} {_words(numbers(chosen, level))}{several}"
    return f'<td class="{_class(verdict)}" data-label="{escape(row.scale)}">{words}</td>'


def _place_of(stem: str) -> str:
    return next((section.key for section in SECTIONS if stem in section.stems), "others")


def _section(
    section: Section, verdicts: Verdicts, shown: Sequence[tuple[TableFolder, Experiment]]
) -> str:
    """A principle in words, its figures and its verdicts."""
    figures = [_figure(folder, e) for folder, e in shown if e.stem in section.stems]
    definitions = "".join(
        f"<dt>{name}</dt><dd>{_symbols(words)}</dd>"
        for name, words in (
            ("The knob", section.knob),
            ("The paper found", section.paper),
            ("Here", section.here),
            ("What would change it", section.change),
        )
    )
    details = "".join(_details(section, rows) for rows in verdicts.values())
    missing = "" if figures else "<p>There are no runs of it yet.</p>"
    return (
        f'<section id="{section.key}"><h2>{_symbols(section.title)}</h2>'
        f"<p>{_symbols(section.statement)}</p>"
        f"<dl>{definitions}</dl>{''.join(figures)}{missing}{details}</section>"
    )


def _details(section: Section, rows: Sequence[Judged]) -> str:
    """Every effect of every claim at one scale, folded away."""
    lines = [
        f'<li class="{_class(row.judgement.verdict)}"><b>{_words(row.claim.name)}</b>: '
        f'<b class="verdict">{escape(row.judgement.verdict)}</b>. {_words(row.claim.statement)} '
        f"<small>{escape(row.claim.place)}</small><br>{_words(row.judgement.statistic)}</li>"
        for row in rows
        if row.stem in section.stems
    ]
    if not lines:
        return ""
    scale = escape(rows[0].scale)
    return (
        f"<details><summary>Verdicts at scale={scale}</summary><ul>{''.join(lines)}</ul></details>"
    )


def _figure(folder: TableFolder, experiment: Experiment) -> str:
    stem, scale, caption = experiment.stem, folder.scale, experiment.caption
    return (
        f'<figure id="{scale}-{stem}">{_picture(folder.draw(experiment), caption)}'
        f"<figcaption>{_words(caption)}<br><small>{stem}, scale={scale}. "
        f"{_provenance(folder, experiment)}</small></figcaption></figure>"
    )


def _provenance(folder: TableFolder, experiment: Experiment) -> str:
    stem = experiment.stem
    if experiment.columns:  # made by a benchmark, without records
        table = folder.read(stem, experiment.columns)
        return escape("; ".join(dict.fromkeys(table.get("device", ()))))
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
    missing = f", {about['missing']} missing" * bool(about["missing"])
    narrowed = f" (with {' '.join(folder.narrowed(stem))})" * bool(folder.narrowed(stem))
    runs = f"{about['runs']} runs{narrowed}{missing}, {about['hours']:g} h in all"
    return escape(f"{runs}; commit {commits}; torch {torch}; {devices}")


def _points(shown: Sequence[tuple[TableFolder, Experiment]]) -> dict[str, Any]:
    """The page's table: a row per grid point, with its runs and their curves.

    Whatever any of the grids varies is a column.
    """
    tables = [(folder, e, folder.read(e.stem)) for folder, e in shown if not e.columns]
    axes = list(dict.fromkeys([*AXES, *(n for *_, table in tables for n in axes_of(table))]))
    columns, rows = ["scale", "experiment", *axes, *SHOWN], []
    for folder, experiment, table in tables:
        names, stem, curves = axes_of(table), experiment.stem, _curves(folder, experiment)
        runs_of = folder.read(f"{stem}_runs").groupby(names, dropna=False)
        # Keys are text, so that blanks are equal.
        groups = {tuple(map(str, key)): group for key, group in runs_of}
        for point in table.assign(experiment=stem).to_dict("records"):
            group = groups.get(tuple(str(point[name]) for name in names))
            if group is None:
                raise ConfigError(f"{folder.path(stem)} and its _runs disagree; make them again")
            runs = [[_plain(v) for v in row] for row in group[OF_A_RUN].to_numpy().tolist()]
            lines = [curves[run_id] for run_id in group["run_id"] if run_id in curves]
            rows.append(
                {"cells": [_plain(point.get(n)) for n in columns], "runs": runs, "curves": lines}
            )
    return {"columns": columns, "run_columns": OF_A_RUN, "points": rows}


def _curves(folder: TableFolder, experiment: Experiment) -> dict[str, dict[str, Any]]:
    """The curve of each run, by run_id: its name, its seed, and (epoch, value) pairs."""
    if not folder.has(experiment.curves):
        return {}
    return dict(_curve_of(folder.read(experiment.curves)))


def _curve_of(table: pd.DataFrame) -> Iterator[tuple[str, dict[str, Any]]]:
    for run_id, rows in table.groupby("run_id", sort=False):
        for name in CURVES:
            line = rows[["epoch", name]].apply(pd.to_numeric).dropna()
            if len(line) > 1:
                points = [[int(x), float(f"{y:.4g}")] for x, y in line.to_numpy()]
                yield str(run_id), {"of": name, "seed": int(rows["seed"].iloc[0]), "at": points}
                break


def _plain(value: Any) -> Any:
    """A value for JSON: None for NaN, and six digits of a number."""
    if isinstance(value, float):
        return None if value != value else float(f"{value:.6g}")
    return value
