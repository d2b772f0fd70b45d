"""suite=zeros: how many coefficients of a row are zero, and how many dimensions their states span.

It writes the table of principle2_2_rank, for random q and k.
"""

from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from coefdyn.benchmarks.measure import Result, result
from coefdyn.config.compose import compose
from coefdyn.paper.principle2_rank import COLUMNS, STEM
from coefdyn.principles.measure import mixer_of, zeros_and_ranks
from coefdyn.results.files import TableFolder
from coefdyn.results.tables import write_table

SUITE = "zeros"
DESIGNS = (  # readout, A_t
    ("kernel_softplus", "identity"),
    ("kernel_exp", "identity"),
    ("kernel_relu", "identity"),
    ("identity", "scalar_mamba2"),
)
SEQUENCES = 16


def run(_: int) -> Iterator[Result]:
    """Measure at the head dimension and the longest sequences of principle2_2_zeros."""
    for scale in ("paper", "lite"):
        table = measured(scale)
        write_table(TableFolder(Path("results"), scale).path(STEM), table)
        largest, limit = float(table["rank"].max()), float(table["limit"].iloc[0])
        yield result(SUITE, f"largest mean rank, scale={scale}", largest, "", limit, 1.0)


def measured(scale: str, sequences: int = SEQUENCES) -> pd.DataFrame:
    """A row per design and step: means over random sequences."""
    rows = []
    for readout, evolution in DESIGNS:
        config = compose(
            ["experiment=principle2_2_zeros", "task=selective_copying", f"scale={scale}",
             f"model/readout={readout}", f"model/evolution={evolution}"]
        )  # fmt: skip
        model = config.values["model"]
        width = model["n_state"] // model["n_heads"]
        counts = zeros_and_ranks(
            mixer_of(config, width), config.values["task"]["seq_len"], sequences
        )
        steps = zip(*(part.tolist() for part in counts), strict=True)
        rows += [
            [scale, readout, evolution, i, round(zeros, 4), round(rank, 4), width - 1]
            for i, (zeros, rank) in enumerate(steps, 1)
        ]
    return pd.DataFrame(rows, columns=COLUMNS)
