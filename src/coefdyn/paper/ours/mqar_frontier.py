"""The frontier of recall: accuracy against the bytes that an architecture keeps while it reads."""

from collections.abc import Sequence
from itertools import cycle

import pandas as pd
from matplotlib.figure import Figure

from coefdyn.config.build import build_model
from coefdyn.config.compose import Config
from coefdyn.model.state_size import state_bytes
from coefdyn.paper.looks import NEWER, PRESETS, TABLE_1
from coefdyn.paper.points import chance_of
from coefdyn.plot.style import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PAGE,
    PINK,
    RED,
    SKY,
    YELLOW,
    accuracy_axis,
    log_axis,
    paper_style,
)
from coefdyn.results.claim import SOLVED, Claim, Effect, NotEnoughRunsError, Region, Tables
from coefdyn.results.effects import contrast, mean
from coefdyn.results.experiment import Experiment, Records

STEM = "mqar_frontier"
STATE = "mqar_frontier_state"
COLUMNS = ["scale", "model", "n_state", "seq_len", "state_bytes"]
DECAYS = ("gla", "mamba2")
ERASING = ("deltanet", "gated_deltanet")


def state_table(points: pd.DataFrame, records: Records) -> pd.DataFrame:
    """What the model of each point keeps after the tested length."""
    rows = []
    for point in points.to_dict("records"):
        record = records[point["run_id"]]
        assert record is not None
        model = build_model(Config(record.config, record.choices))
        size = state_bytes(model, point["seq_len"])
        rows.append([*(point[name] for name in COLUMNS[:-1]), size])
    return pd.DataFrame(rows, columns=COLUMNS)


def draw(tables: Tables) -> Figure:
    """Accuracy by bytes, a line per architecture: on the left those of Table 1, then newer ones."""
    points = tables[STEM].merge(tables[STATE], on=COLUMNS[:-1])
    groups = [
        {name: PRESETS[name] for name in group if name in set(points["model"])}
        for group in (TABLE_1, NEWER)
    ]
    with paper_style():
        figure = Figure(figsize=(PAGE, 3.3), layout="constrained")
        panels = figure.subplots(1, 2, sharex=True, sharey=True)
        for axes, names, title in zip(panels, groups, ("Table 1", "since then"), strict=True):
            colours = cycle((BLUE, ORANGE, GREEN, PINK, SKY, RED, YELLOW, GREY))
            for (name, words), colour, marker in zip(
                names.items(), colours, cycle("osD^vP"), strict=False
            ):
                rows = points[points["model"] == name].sort_values("state_bytes")
                axes.plot(rows["state_bytes"], rows["accuracy"], marker=marker, color=colour,
                          label=words)  # fmt: skip
                for row in rows.to_dict("records"):
                    ends = [row["accuracy_min"], row["accuracy_max"]]
                    axes.plot([row["state_bytes"]] * 2, ends, color=colour, linewidth=0.7)
            log_axis(axes)
            axes.set(xlabel="bytes kept at the tested length", title=title)
            accuracy_axis(axes, chance_of(points), label=axes is panels[0])
            axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=2)
    return figure


PLACE = "ours: how much state recall needs"


def _widths(tables: Tables) -> list[int]:
    if STEM not in tables:
        raise NotEnoughRunsError(f"no table of {STEM}")
    return sorted(int(n) for n in set(tables[STEM]["n_state"]))


def _where(model: str, n_state: int) -> dict[str, object]:
    return {"model": model, "n_state": n_state}


def _attention(tables: Tables) -> list[Effect]:
    return [
        mean(tables, f"width {n}", STEM, _where("softmax_attention", n), Region(SOLVED))
        for n in _widths(tables)
    ]


def _more_state(tables: Tables) -> list[Effect]:
    widths = _widths(tables)
    effects = []
    for name in (*DECAYS, *ERASING):
        terms = [(1.0, STEM, "accuracy", _where(name, widths[-1])),
                 (-1.0, STEM, "accuracy", _where(name, widths[0]))]  # fmt: skip
        effects.append(contrast(tables, f"{name}: widest - narrowest", terms, Region(0.1)))
    return effects


def _erasing(tables: Tables) -> list[Effect]:
    """At the width in the middle, where each keeps as much as the others."""
    widths = _widths(tables)
    middle = widths[len(widths) // 2]

    def terms(names: Sequence[str], sign: float) -> list[tuple[float, str, str, dict[str, object]]]:
        return [(sign / len(names), STEM, "accuracy", _where(name, middle)) for name in names]

    both = [*terms(ERASING, 1.0), *terms(DECAYS, -1.0)]
    return [contrast(tables, f"delta rule - decay, width {middle}", both, Region(0.05))]


EXPERIMENTS = (
    Experiment(
        STEM,
        caption="Accuracy on multi-query associative recall against the bytes that a model keeps "
        "at the tested length, all layers together: its state, or all keys and values. A line per "
        "architecture, a point per width; vertical lines from the worst to the best seed. Not in "
        "the paper.",
        draw=draw,
        more={STATE: state_table},
        claims=(
            Claim(
                "MQAR, attention",
                "Softmax attention recalls at every width.",
                PLACE,
                (STEM,),
                _attention,
                reads=({"model": "softmax_attention"},),
            ),
            Claim(
                "MQAR, state",
                "Architectures with a state of fixed size recall more with a larger one.",
                PLACE,
                (STEM,),
                _more_state,
                reads=tuple({"model": name} for name in (*DECAYS, *ERASING)),
            ),
            Claim(
                "MQAR, delta rule",
                "With equal state, architectures that erase what they overwrite recall more.",
                PLACE,
                (STEM,),
                _erasing,
                reads=tuple({"model": name} for name in (*DECAYS, *ERASING)),
            ),
        ),
    ),
)
