"""suite=lengths: time of Mamba-2 and of softmax attention against sequence length.

It writes the table of principle1_throughput.
"""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pandas as pd
import torch

from coefdyn.benchmarks.measure import Result, interleaved_medians, result
from coefdyn.config.build import build_design_mixer
from coefdyn.config.compose import compose
from coefdyn.mixer.sequence_mixer import SequenceMixer
from coefdyn.paper.principle1 import COLUMNS, STEM
from coefdyn.results.files import TableFolder
from coefdyn.results.statistics import slope
from coefdyn.results.tables import write_table

SUITE = "lengths"
GRID = [round(2 ** (k / 2)) for k in range(18, 33)]  # 512 to 65536
LONGEST = {"linear": 65536, "quadratic": 16384}
SIZES = ["model.d_model=64", "model.n_state=64", "model.d_value=64", "model.n_heads=4"]
MODELS = {"linear": "mamba2", "quadratic": "softmax_attention"}  # form -> the model that has it
BARS = {"linear": 1.25, "quadratic": 2.4}  # largest slopes


def run(repeats: int) -> Iterator[Result]:
    """The slopes of both models, each in the form that training would use on this machine."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    name = (
        torch.cuda.get_device_name()
        if device == "cuda"
        else f"CPU, {torch.get_num_threads()} threads"
    )
    rows = []
    for length in GRID:
        x = torch.randn(1, length, 64, device=device)
        mixers = {
            form: build_design_mixer(compose([*SIZES, f"model={model}"])).to(device)
            for form, model in MODELS.items()
            if length <= LONGEST[form]
        }
        cases = {form: partial(_forward_and_backward, mixer, x) for form, mixer in mixers.items()}
        for form, value in interleaved_medians(cases, max(3, repeats // 2)).items():
            rows.append(["lite", form, length, value, name])
    table = pd.DataFrame(rows, columns=COLUMNS)
    for form, bar in BARS.items():
        chosen = table[table["form"] == form]
        fit = slope(list(chosen["length"]), list(chosen["milliseconds"]))
        yield result(SUITE, f"slope of {MODELS[form]}", fit.slope, "", 1.0, bar)
    path = TableFolder(Path("results"), "lite").path(STEM)
    write_table(path, _added(path, table))


def _added(path: Path, table: pd.DataFrame) -> pd.DataFrame:
    """The table, added to those that other processes measured on the same device.

    The claim's interval is over processes.
    """
    before = pd.read_csv(path) if path.exists() else table.iloc[:0]
    if "process" not in before or set(before["device"]) != set(table["device"]):
        return table.assign(process=0)
    return pd.concat([before, table.assign(process=int(before["process"].max()) + 1)])


def time_of(
    mixer: SequenceMixer, length: int, device: torch.device, half: torch.dtype | None
) -> float:
    """Median milliseconds of a pass forward and backward, under autocast to `half`."""
    x = torch.randn(1, length, mixer.d_model, device=device)
    with torch.autocast(device.type, half, enabled=half is not None):
        return interleaved_medians({"": partial(_forward_and_backward, mixer, x)}, 3)[""]


def _forward_and_backward(mixer: SequenceMixer, x: torch.Tensor) -> None:
    mixer.zero_grad()
    mixer(x).sum().backward()
    if x.is_cuda:
        torch.cuda.synchronize()
