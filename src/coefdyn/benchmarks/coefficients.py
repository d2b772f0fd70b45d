"""suite=coefficients: writes the table of principle2_coefficients.

It has the coefficients of each readout of principle 2 on one sequence of fuzzy recall, from the
weights of runs in results/runs.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from coefdyn.benchmarks.measure import Result, result
from coefdyn.errors import ConfigError
from coefdyn.paper.principle2_coefficients import COLUMNS, STEM
from coefdyn.results.files import TableFolder
from coefdyn.results.load import Run, load_run
from coefdyn.results.tables import write_table

SUITE, RUNS_OF, TASK = "coefficients", "principle2_readout", "fuzzy_recall"
SEQUENCES = 64  # used to choose the head; the first is shown
DIGITS = 3


def run(_: int) -> Iterator[Result]:
    """Write the table. Its bar: the weights of a row of softmax attention add up to one."""
    folder = TableFolder(Path("results"), "lite")
    table = measured(folder)
    write_table(folder.path(STEM), table)
    sums = [sum(map(float, row.split())) for row in table["weights"][table["readout"] == "exp"]]
    yield result(SUITE, "largest sum of a row, readout=exp", max(sums), "", 1.0, 1.02)


def measured(folder: TableFolder) -> pd.DataFrame:
    """A row per readout, layer and step i, with the weights of the steps up to i as text."""
    points = folder.read(RUNS_OF)
    rows = []
    for point in points[points["task"] == TASK].to_dict("records"):
        place = folder.results / "runs" / point["run_id"]
        if not (place / "last.ckpt").exists():
            raise ConfigError(
                f"{place} has no weights: train it again by coefdyn train with force=true"
            )
        for layer, (head, weights) in enumerate(most_selective(load_run(place)), 1):
            for i, row in enumerate(weights, 1):
                text = " ".join(f"{weight:.{DIGITS}g}" for weight in row[:i])
                rows.append([point["scale"], TASK, point["readout"], layer, head, i, text,
                             point["run_id"]])  # fmt: skip
    return pd.DataFrame(rows, columns=COLUMNS)


@torch.no_grad()
def most_selective(run: Run) -> list[tuple[int, np.ndarray]]:
    """For each layer the head whose rows have the lowest entropy, counted from 1.

    With each head comes its alpha/eta (i j) of the first sequence.
    """
    tokens = run.task().generate("test", 0).inputs[:SEQUENCES]
    heads = []
    for alpha, eta, _ in run.coefficients(tokens):
        share = alpha.abs() / alpha.abs().sum(-1, keepdim=True).clamp(min=1e-300)
        head = int(torch.special.entr(share).sum(-1).mean((0, 2)).argmin())
        heads.append((head + 1, (alpha[0, head] / eta[0, head, :, None]).numpy()))
    return heads
