"""The demo's figure and page: one small ablation, from its records."""

import base64
import io
from collections.abc import Sequence
from html import escape

from matplotlib.figure import Figure

from coefdyn.paper.looks import NEAR_ZERO, readout_look
from coefdyn.plot.style import COLUMN, accuracy_axis, legend_below, paper_style, task_name
from coefdyn.runs.record import Record

TASKS = ("in_context_recall", "memorization")  # seconds each, at lite
SHOWN = ("exp", "softplus", "relu", "sigmoid", "elu_plus_one", "identity")


def readout(record: Record) -> str:
    return str(record.choices["model/readout"])


def task(record: Record) -> str:
    return str(record.choices["task"])


def figure(records: Sequence[Record]) -> Figure:
    """Accuracy against the fraction of coefficients near zero, a panel per task."""
    tasks = list(dict.fromkeys(task(record) for record in records))
    with paper_style():
        drawing = Figure(figsize=(COLUMN * len(tasks), 2.9), layout="constrained")
        panels = drawing.subplots(1, len(tasks), squeeze=False)[0]
        for axes, name in zip(panels, tasks, strict=True):
            chosen = [record for record in records if task(record) == name]
            for record in chosen:
                if record.coefficients is None:  # diverged: an accuracy, but no coefficients
                    continue
                label, colour = readout_look(readout(record))
                x, y = record.coefficients["near_zero"], record.metrics["test/accuracy"]
                axes.plot(x, y, "o", color=colour, label=label, markersize=6)
            axes.set(title=task_name(name), xlabel=NEAR_ZERO, xlim=(-0.03, 1.03))
            accuracy_axis(axes, chosen[0].chance, label=name == tasks[0])
        legend_below(drawing, columns=len(SHOWN))
    return drawing


def page(records: Sequence[Record], drawing: Figure) -> str:
    """One file that needs no network: the figure, and a row per run."""
    buffer = io.BytesIO()
    drawing.savefig(buffer, format="png", dpi=200)
    picture = base64.b64encode(buffer.getvalue()).decode()
    return f"""<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>coefdyn demo: which readout?</title>
<style>
 body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto }}
 body {{ padding: 0 1rem }}
 img {{ max-width: 100% }}
 .scroll {{ overflow-x: auto }}
 table {{ border-collapse: collapse; font-variant-numeric: tabular-nums }}
 th, td {{ padding: .3rem .8rem; border-bottom: 1px solid #ddd; text-align: right }}
 th, td {{ white-space: nowrap }}
 th:first-child, td:first-child, th:nth-child(2), td:nth-child(2) {{ text-align: left }}
 code {{ font-size: .9em }}
</style>
<h1>Which readout?</h1>
<p>{escape(records[0].choices["model"].replace("_", " "))} with its readout &phi; exchanged,
everything else equal. One learning rate and one seed at scale
<i>{escape(records[0].choices["scale"])}</i>: enough to see the tool work, not to judge a claim.</p>
<img src="data:image/png;base64,{picture}" alt="accuracy against the fraction near zero">
<div class="scroll"><table>
<tr><th>task</th><th>readout</th><th>accuracy</th><th>chance</th><th>near zero</th>
<th>in [0.9, 1]</th><th>status</th><th>seconds</th><th>run</th></tr>
{"".join(_row(record) for record in records)}</table></div>
<p>Made from the runs' records by <code>make demo</code>; each run's configuration, metrics and
versions are in <code>results/runs/&lt;run&gt;/record.json</code>.</p>
</html>
"""


def _row(record: Record) -> str:
    statistics = record.coefficients or {}
    cells = [
        task_name(task(record)),
        readout(record),
        f"{record.metrics['test/accuracy']:.3f}",
        f"{record.chance:.3f}",
        _number(statistics.get("near_zero")),
        _number(statistics.get("near_one")),
        record.status,
        f"{record.seconds['training']:.0f}",
        record.run_id,
    ]
    return "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>\n"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"
