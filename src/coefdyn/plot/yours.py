"""Figures of a user's own runs: coefficients as heat maps, learning curves, ablations."""

import difflib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from coefdyn.errors import ConfigError
from coefdyn.plot.default import COLOURS
from coefdyn.plot.style import (
    ACCURACY,
    COLUMN,
    accuracy_axis,
    legend_below,
    paper_style,
    show_seeds,
    task_name,
)
from coefdyn.results.rounds import PILOT
from coefdyn.results.variance import reach_of

if TYPE_CHECKING:
    from coefdyn.results.load import Run
    from coefdyn.tasks.task import Task

DESIGN = ("task", "model", "evolution", "scaling", "readout", "normalization", "block",
          "preprocess", "position", "reading", "scale")  # fmt: skip
SEEDS = ("task.seed", "task.map_seed")
TESTS = ("task.test_lengths", "task.test_gaps")  # what is tested besides changes no other number
OF_A_DESIGN = ("model.n_", "model.d_", "model.block.", "task.")
SHOWN_TOKENS = 40  # more are no longer readable beside an axis
ACCURACY_COLUMNS = "test/accuracy"  # how names of accuracies begin


def coefficients(run: "Run", tokens: Any, sequence: int = 0) -> Figure:
    """Heat maps of the coefficients alpha/eta of one sequence: a row per layer, a panel per head.

    `tokens`: a batch (b t), of which `sequence` is drawn, or one sequence (t). Row i of a panel
    shows how much step i takes from each earlier step j.
    """
    batch = np.asarray(tokens)
    batch = batch[None] if batch.ndim == 1 else batch
    if batch.ndim != 2 or not 0 <= sequence < len(batch):
        raise ConfigError(
            f"coefficients needs tokens (b t) and sequence < b, not tokens {batch.shape} and "
            f"sequence={sequence}"
        )
    layers = []
    for alpha, eta, *_ in run.coefficients(batch[sequence : sequence + 1]):
        layers.append((alpha[0] / eta[0, ..., None]).double().numpy())
    if not layers:
        raise ConfigError("the model has a mixer of your own, whose coefficients are not known")
    heads, labels = layers[0].shape[0], [str(token) for token in batch[sequence]]
    # Signed coefficients need a scale with zero in the middle; others begin at zero.
    finite = np.concatenate([weights[np.isfinite(weights)] for weights in layers])
    largest = float(np.abs(finite).max()) if finite.size else 1.0
    signed = bool((finite < 0).any())
    look = {
        "cmap": "RdBu_r" if signed else "Blues",
        "vmin": -largest if signed else 0.0,
        "vmax": largest,
    }
    with paper_style():
        size = 1.0 + 2.1 * heads, 0.5 + 2.1 * len(layers)
        figure = Figure(figsize=size, layout="constrained")
        grid = figure.subplots(len(layers), heads, squeeze=False, sharex=True, sharey=True)
        for number, (line, weights) in enumerate(zip(grid, layers, strict=True), 1):
            for head, axes in enumerate(line):
                above = np.triu(np.ones_like(weights[head], dtype=bool), 1)
                picture = axes.imshow(np.ma.masked_where(above, weights[head]), **look)
                axes.set_title(f"layer {number}, head {head + 1}", fontsize=7)
                if len(labels) <= SHOWN_TOKENS:
                    axes.set_xticks(range(len(labels)), labels, fontsize=4.5, rotation=90)
                    axes.set_yticks(range(len(labels)), labels, fontsize=4.5)
                    axes.tick_params(length=0, pad=1)
        figure.supxlabel("step $j$ (its token)", fontsize=7)
        figure.supylabel("step $i$", fontsize=7)
        figure.colorbar(picture, ax=grid, label=r"$\alpha_{ij}/\eta_i$", fraction=0.03)
    return figure


def curves(runs: "Sequence[Run] | Mapping[str, Run]", y: str = "test/accuracy") -> Figure:
    """A line per run over its epochs, named by its key in `runs` or by what tells runs apart."""
    named = dict(runs) if isinstance(runs, Mapping) else dict(zip(_names(runs), runs, strict=True))
    if not named:
        raise ConfigError("curves needs one run at least")
    with paper_style():
        figure = Figure(figsize=(COLUMN * 1.2, 2.8), layout="constrained")
        axes = figure.subplots()
        for number, (name, run) in enumerate(named.items()):
            history = run.history
            _known(y, history.columns)
            rows = history[history[y].notna()]
            axes.plot(rows["epoch"], rows[y], ".-", color=COLOURS[number % len(COLOURS)],
                      label=name)  # fmt: skip
        axes.set_xlabel("epoch")
        if y.startswith(ACCURACY_COLUMNS):
            accuracy_axis(axes, min(run.record.chance for run in named.values()))
        axes.set_ylabel(ACCURACY if y == "test/accuracy" else y.replace("/", " "))
        legend_below(figure, columns=2)
    return figure


def ablation(frame: pd.DataFrame, x: str, hue: str | None = None, y: str = "test/accuracy",
             panel: str | None = None) -> Figure:  # fmt: skip
    """`y` by the values of column `x`: a dot per seed, the mean over seeds and its interval.

    `frame` is the table of load_runs, or a part of it. Each value of the column `hue` has a colour,
    each value of `panel` a panel. Of several learning rates each seed shows its best.
    """
    for name in (x, y, *(column for column in (hue, panel) if column)):
        _known(name, frame.columns)
    _known("seed", frame.columns)
    if "seed" in (x, hue, panel):
        raise ConfigError("every dot is a seed already; choose another column than seed")
    keys = [name for name in dict.fromkeys((panel, hue, x)) if name is not None]
    rows = frame.dropna(subset=[y])
    if rows.empty:
        raise ConfigError(f"no run of the frame has {y}")
    _check_cells(rows, keys)
    if (rows["seed"] < PILOT).any():
        rows = rows[rows["seed"] < PILOT]
    groups = rows.groupby([*keys, "seed"], sort=False)[y]
    best = (groups.min() if "loss" in y or "perplexity" in y else groups.max()).reset_index()
    places = sorted(best[x].unique(), key=lambda value: (isinstance(value, str), value))
    panels = list(dict.fromkeys(best[panel])) if panel else [None]
    hues = list(dict.fromkeys(best[hue])) if hue else [None]
    with paper_style():
        figure = Figure(figsize=(COLUMN * max(1.2, len(panels)), 2.9), layout="constrained")
        grid = figure.subplots(1, len(panels), squeeze=False, sharey=True)[0]
        for axes, panel_value in zip(grid, panels, strict=True):
            rows = best if panel_value is None else best[best[panel] == panel_value]
            for number, colour in zip(range(len(hues)), COLOURS * len(hues), strict=False):
                part = rows if hue is None else rows[rows[hue] == hues[number]]
                shift = 0.5 * ((number + 0.5) / len(hues) - 0.5)
                positions, means = [], []
                for place, value in enumerate(places):
                    seeds = part[part[x] == value][y].to_numpy(dtype=float)
                    if len(seeds):
                        show_seeds(axes, place + shift, seeds, (0.0, reach_of(seeds)), colour)
                        positions.append(place + shift)
                        means.append(seeds.mean())
                label = "" if hue is None else task_name(str(hues[number]))
                axes.plot(positions, means, "o", color=colour, label=label)
            axes.set_xticks(range(len(places)), [task_name(str(value)) for value in places])
            axes.set(
                xlabel=task_name(x),
                title="" if panel_value is None else task_name(str(panel_value)),
            )
            axes.set_xlim(-0.6, len(places) - 0.4)
            if y.startswith(ACCURACY_COLUMNS):
                axes.set_ylim(-0.03, 1.05)
        grid[0].set_ylabel(ACCURACY if y == "test/accuracy" else y.replace("/", " "))
        if hue:
            legend_below(figure, columns=4)
    return figure


def _check_cells(rows: pd.DataFrame, keys: Sequence[str]) -> None:
    """Runs with the same `keys` may differ in seed and rate, but not in design, task or size."""
    for name in rows.columns:
        if name in (*keys, *SEEDS, *TESTS) or not (name in DESIGN or name.startswith(OF_A_DESIGN)):
            continue
        values = rows[name].astype(str)
        if (values.groupby([rows[key] for key in keys], dropna=False).nunique() > 1).any():
            raise ConfigError(
                f"runs with the same {' and '.join(keys)} differ in {name}; make it hue or panel, "
                f"or select some of them, such as frame[frame[{name!r}] == {rows[name].iloc[0]!r}]"
            )


def _names(runs: "Sequence[Run]") -> list[str]:
    """A name per run: the choices, rates and seeds in which the runs differ."""
    settings = [
        {k.removeprefix("model/"): v for k, v in run.record.choices.items()}
        | {"lr": run.record.config["optimizer"]["lr"], "seed": run.record.config["seed"]}
        for run in runs
    ]
    differing = [k for k in dict.fromkeys(k for row in settings for k in row)
                 if len({str(row.get(k)) for row in settings}) > 1]  # fmt: skip
    names = [
        ", ".join(f"{k} {row.get(k)}".replace("_", " ") for k in differing) for row in settings
    ]
    if len(set(names)) == len(names):
        return [name or run.run_id for name, run in zip(names, runs, strict=True)]
    return [f"{name} ({run.run_id})" for name, run in zip(names, runs, strict=True)]


def _known(name: str, columns: Any) -> None:
    if name not in columns:
        near = difflib.get_close_matches(name, [str(column) for column in columns], 3, 0.4)
        raise ConfigError(
            f"there is no column {name}; " + (f"did you mean {' or '.join(near)}?" if near else
            "list(frame.columns) names them")
        )  # fmt: skip


def examples(tasks: "Mapping[str, Task]", seed: int = 0) -> Figure:
    """One sequence of each task. Upper row: the tokens; lower row: what to predict after each.

    `tasks`: by the names to show. Each token has a colour; a dot is not scored.
    """
    with paper_style():
        height = 0.75 * len(tasks)
        figure = Figure(figsize=(2 * COLUMN, height), layout="constrained")
        grid = figure.subplots(len(tasks), 1, squeeze=False)[:, 0]
        for axes, (name, task) in zip(grid, tasks.items(), strict=True):
            data = task.generate("test", seed)
            rows = np.stack([data.inputs[0], data.targets[0]])
            masked = np.ma.masked_less(rows, 0)
            axes.imshow(masked, cmap="tab20", vmin=0, vmax=max(19, task.vocab_size), aspect="auto",
                        alpha=0.55)  # fmt: skip
            for (row, step), token in np.ndenumerate(rows):
                axes.text(step, row, "·" if token < 0 else str(token), ha="center", va="center",
                          fontsize=6)  # fmt: skip
            axes.set_yticks([0, 1], ["reads", "writes"], fontsize=6)
            axes.set_xticks([])
            axes.tick_params(length=0)
            axes.set_title(task_name(name), fontsize=7.5, loc="left", pad=2)
            for spine in axes.spines.values():
                spine.set_visible(False)
    return figure
