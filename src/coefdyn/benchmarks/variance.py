"""suite=variance: how the variance of q . h grows with the head dimension before any training.

It writes the table of principle5_variance.
"""

from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import torch

from coefdyn.benchmarks.measure import Result, result
from coefdyn.config.build import build_model, build_task
from coefdyn.config.compose import compose
from coefdyn.model.coefficient_statistics import brief_statistics
from coefdyn.paper.principle5_variance import COLUMNS, STEM
from coefdyn.results.files import TableFolder
from coefdyn.results.statistics import slope
from coefdyn.results.tables import write_table

SUITE = "variance"
SEEDS = 24
SCALINGS = ("one", "inverse_sqrt")
SIZES = {"paper": (4, (128, 256, 512, 1024)), "lite": (2, (64, 256, 512))}  # heads, total n
SEQUENCES = 8


def run(_: int) -> Iterator[Result]:
    """The slopes for softmax attention on fuzzy recall, at the sizes of principle5_scaling."""
    for scale in SIZES:
        table = measured(scale)
        write_table(TableFolder(Path("results"), scale).path(STEM), table)
        means = table.groupby(["scaling", "head_dimension"])["score_variance"].mean()
        for scaling in SCALINGS:
            line = means[scaling]
            # Times n, which removes the scaling: both slopes should be 1.
            y = line * line.index if scaling == "inverse_sqrt" else line
            fitted = slope(list(line.index), list(y)).slope
            name = "n Var(q.h), b = 1/sqrt(n)" if scaling == "inverse_sqrt" else "Var(q.h), b = 1"
            # A slope below 1 counts as one equally far above it.
            value = 1 + abs(fitted - 1)
            yield result(SUITE, f"slope of {name}, scale={scale}", value, "", 1.0, 1.1)


@torch.no_grad()
def measured(scale: str, seeds: int = SEEDS) -> pd.DataFrame:
    """A row per scaling, size and seed of an untrained model."""
    heads, sizes = SIZES[scale]
    rows = []
    for scaling in SCALINGS:
        for size in sizes:
            for seed in range(seeds):
                config = compose(
                    ["model=softmax_attention", "task=fuzzy_recall", f"scale={scale}",
                     f"model/scaling={scaling}", f"model.n_heads={heads}", f"model.n_state={size}",
                     f"seed={seed}", f"task.num_train={SEQUENCES}"]
                )  # fmt: skip
                torch.manual_seed(seed)
                model = build_model(config).eval()
                tokens = torch.as_tensor(build_task(config).generate("train", seed).inputs)
                variance = brief_statistics(model, tokens)["score_variance"]
                rows.append([scale, scaling, size // heads, seed, variance, "CPU"])
    return pd.DataFrame(rows, columns=COLUMNS)
