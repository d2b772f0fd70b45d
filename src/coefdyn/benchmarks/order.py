"""suite=order: what an untrained model of principle 3 knows of the order of its tokens.

It writes the table of principle3_order.
"""

from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pandas as pd
import torch
from jaxtyping import Float, Int64
from torch import Tensor

from coefdyn.benchmarks.measure import Result, result
from coefdyn.config.build import build_model, build_task
from coefdyn.config.compose import compose
from coefdyn.model.model import SequenceModel, blocks_of
from coefdyn.paper.bars import READOUT_ORDER
from coefdyn.paper.principle3_order import COLUMNS, STEM
from coefdyn.results.files import TableFolder
from coefdyn.results.tables import write_table

SUITE = "order"
SCALES = ("paper", "lite")
EVOLUTIONS, POSITIONS = ("identity", "constant"), ("none", "learned")
SEEDS, SEQUENCES = 8, 64


def run(_: int) -> Iterator[Result]:
    """Its bar: with A = I and no positions one layer knows nothing of the order."""
    for scale in SCALES:
        table = measured(scale)
        write_table(TableFolder(Path("results"), scale).path(STEM), table)
        bare = (table["evolution"] == "identity") & (table["position"] == "none")
        worst = table[bare & (table["layer"] == 1)]["order"].max()
        name = f"1 + order after layer 1, A = I, no positions, scale={scale}"
        yield result(SUITE, name, 1 + worst, "", 1.0, 1 + 1e-6)


def measured(scale: str, seeds: int = SEEDS) -> pd.DataFrame:
    """A row per design, layer and seed."""
    rows = []
    for evolution, readout, position in product(EVOLUTIONS, READOUT_ORDER, POSITIONS):
        for seed in range(seeds):
            config = compose(
                ["experiment=principle3_position", f"scale={scale}", f"model/evolution={evolution}",
                 f"model/readout={readout}", f"model/position={position}", f"seed={seed}",
                 f"task.num_train={SEQUENCES}"]
            )  # fmt: skip
            torch.manual_seed(seed)
            model = build_model(config).double().eval()
            tokens = torch.as_tensor(build_task(config).generate("train", seed).inputs)
            for layer, order in enumerate(order_by_layer(model, tokens, seed), 1):
                rows.append([scale, readout, evolution, position, layer, seed, order])
    return pd.DataFrame(rows, columns=COLUMNS)


@torch.no_grad()
def order_by_layer(model: SequenceModel, tokens: Int64[Tensor, "b t"], seed: int) -> list[float]:
    """How far the last step moves when the tokens before it change places, against how far it
    moves when they are those of another sequence; after each layer, in root mean squares."""
    generator = torch.Generator().manual_seed(seed)
    last, before = tokens[:, -1:], tokens[:, :-1]
    places = torch.rand(before.shape, generator=generator).argsort(-1)
    changed_places = torch.cat([before.gather(1, places), last], dim=1)
    changed_tokens = torch.cat([before.roll(1, 0), last], dim=1)
    layers = [_last_step(model, x) for x in (tokens, changed_places, changed_tokens)]
    return [
        float((moved - x).square().mean().sqrt() / (other - x).square().mean().sqrt())
        for x, moved, other in zip(*layers, strict=True)
    ]


def _last_step(
    model: SequenceModel, tokens: Int64[Tensor, "b t"]
) -> Iterator[Float[Tensor, "b d"]]:
    x = model.embed(tokens)
    for block in blocks_of(model):
        x = block(x)
        yield x[:, -1]
