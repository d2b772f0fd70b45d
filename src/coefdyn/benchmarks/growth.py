"""suite=growth: how the largest coefficient of a row grows along a sequence before any training.

It writes the table of principle6_growth.
"""

import math
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from coefdyn.benchmarks.measure import Result, result
from coefdyn.config.build import build_model, build_task
from coefdyn.config.compose import Config, compose
from coefdyn.model.coefficient_statistics import layers_of
from coefdyn.paper.bars import READOUT_ORDER
from coefdyn.paper.looks import NORMALIZATIONS
from coefdyn.paper.principle6_growth import COLUMNS, STEM
from coefdyn.results.files import TableFolder
from coefdyn.results.tables import write_table

SUITE = "growth"
SCALES = ("paper", "lite")
SEEDS, SEQUENCES = 8, 16


def run(_: int) -> Iterator[Result]:
    """Its bar: with eta = c^i the coefficients of relu grow no more."""
    for scale in SCALES:
        table = measured(scale)
        write_table(TableFolder(Path("results"), scale).path(STEM), table)
        relu = table[(table["readout"] == "relu") & (table["normalization"] == "power")]
        line = relu.sort_values("index")["largest"]
        half = len(line) // 2
        ratio = float(line.iloc[-1] / line.iloc[half])
        name = f"largest of the last row against row {half + 1}, relu, eta = c^i, scale={scale}"
        yield result(SUITE, name, ratio, "", 1.0, 1.5)


def measured(scale: str, seeds: int = SEEDS) -> pd.DataFrame:
    """A row per design and step: the median over seeds, sequences and heads of layer 1."""
    rows = []
    for normalization, readout in product(NORMALIZATIONS, READOUT_ORDER):
        largest = []
        for seed in range(seeds):
            config = compose(
                ["experiment=principle6_normalization", f"scale={scale}",
                 f"model/normalization={normalization}", f"model/readout={readout}",
                 f"seed={seed}", f"task.num_train={SEQUENCES}"]
            )  # fmt: skip
            torch.manual_seed(seed)
            largest.append(largest_of_rows(config, seed))
        for i, size in enumerate(torch.cat(largest).median(0).values.tolist(), 1):
            rows.append([scale, readout, normalization, i, size])
    return pd.DataFrame(rows, columns=COLUMNS)


@torch.no_grad()
def largest_of_rows(config: Config, seed: int) -> Float[Tensor, "bh i"]:
    """max_j |alpha_ij/eta_i| of the first layer, in float64; infinite where that overflows."""
    tokens = torch.as_tensor(build_task(config).generate("train", seed).inputs)
    alpha, eta, _ = next(layers_of(build_model(config).eval(), tokens))
    sizes = (alpha / eta.unsqueeze(-1)).abs().nan_to_num(math.inf, math.inf).amax(-1)
    return sizes.flatten(0, 1)
