"""The demo's figure shows its records, and its page stands alone."""

import io
import re
from dataclasses import fields
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.image import imread

from coefdyn.demo import SHOWN, figure, page
from coefdyn.runs.record import Record


def record(task: str, readout: str, accuracy: float, near_zero: float | None) -> Record:
    statistics = None if near_zero is None else {"near_zero": near_zero, "near_one": 0.1}
    blank: dict[str, Any] = {field.name: None for field in fields(Record)}
    known = {
        "run_id": f"{task}-{readout}",
        "status": "diverged" if near_zero is None else "finished",
        "chance": 0.1,
        "choices": {"task": task, "model": "gla", "scale": "lite", "model/readout": readout},
        "metrics": {"test/accuracy": accuracy},
        "coefficients": statistics,
        "seconds": {"training": 3.0},
    }
    made = object.__new__(Record)
    vars(made).update(blank | known)
    return made


RECORDS = [
    record(
        task, readout, 0.2 + 0.1 * i, None if readout == "relu" and task == "b_task" else 0.1 * i
    )
    for task in ("a_task", "b_task")
    for i, readout in enumerate(SHOWN)
]


def pixels(drawing: Figure) -> np.ndarray:
    buffer = io.BytesIO()
    drawing.savefig(buffer, format="png")
    buffer.seek(0)
    return imread(buffer)


def test_the_figure_changes_with_the_records() -> None:
    drawn = pixels(figure(RECORDS))
    assert drawn.std() > 0.01
    changed = [record("a_task", SHOWN[0], 0.9, 0.0), *RECORDS[1:]]
    assert not np.array_equal(drawn, pixels(figure(changed)))


def test_points_are_the_records_that_have_coefficients() -> None:
    first, second = figure(RECORDS).axes
    points = [
        (*line.get_xdata(), *line.get_ydata()) for line in first.lines if len(line.get_xdata()) == 1
    ]
    assert points == [(0.1 * i, 0.2 + 0.1 * i) for i in range(6)]
    assert len(second.lines) == len(first.lines) - 1


def test_the_page_has_every_run_and_needs_no_network() -> None:
    text = page(RECORDS, figure(RECORDS))
    for entry in RECORDS:
        assert entry.run_id in text
    assert not re.search(r"https?://|<script|<link", text)
    assert "diverged" in text
