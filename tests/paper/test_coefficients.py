"""The heat maps of principle 2: from trained weights to a table to a picture."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from coefdyn.benchmarks import coefficients
from coefdyn.config.build import build_task
from coefdyn.errors import ConfigError
from coefdyn.paper import experiments
from coefdyn.results.files import TableFolder
from coefdyn.results.load import load_run
from tests.runs.runs import folder, run_smoke


class OnePoint(TableFolder):
    """As if principle2_readout had this one run."""

    def __init__(self, results: Path, run_id: str) -> None:
        super().__init__(results, "smoke")
        self.run_id = run_id

    def read(self, name: str, columns: object = ()) -> pd.DataFrame:
        assert name == "principle2_readout"
        point = {"scale": "smoke", "task": "fuzzy_recall", "readout": "exp", "run_id": self.run_id}
        return pd.DataFrame([point, point | {"task": "memorization", "run_id": "none"}])


def test_the_most_selective_head_of_each_layer_is_written_and_drawn(tmp_path: Path) -> None:
    record = run_smoke(tmp_path, "task=fuzzy_recall", "model/readout=exp", "task.seq_len=12")
    place = folder(tmp_path, record)
    table = coefficients.measured(OnePoint(tmp_path, place.name))
    run = load_run(place)
    tokens = build_task(run.config).generate("test", 0).inputs[:64]
    layers = run.coefficients(tokens)
    assert sorted(table["layer"].unique()) == list(range(1, len(layers) + 1))
    figure = experiments()[coefficients.STEM].draw({coefficients.STEM: table})
    pictures = [axes for axes in figure.axes if axes.images]
    for (layer, rows), (alpha, eta, _), axes in zip(
        table.groupby("layer"), layers, pictures, strict=False
    ):
        weights = (alpha / eta.unsqueeze(-1)).clamp(min=1e-300)
        entropies = -(weights * weights.log()).sum(-1).mean((0, 2))
        head = int(rows["head"].iloc[0]) - 1
        assert entropies[head] == entropies.min(), layer
        expected = weights[0, head].tril().numpy()
        shown = np.asarray(axes.images[0].get_array().filled(0))
        np.testing.assert_allclose(shown, expected, rtol=6e-3, atol=1e-12)
        last = [float(word) for word in rows["weights"].iloc[-1].split()]
        assert sum(last) == pytest.approx(1, abs=0.01)


def test_a_run_without_weights_gets_one_sentence(tmp_path: Path) -> None:
    record = run_smoke(tmp_path, "task=fuzzy_recall", "task.seq_len=12")
    place = folder(tmp_path, record)
    (place / "last.ckpt").unlink()
    with pytest.raises(ConfigError, match=r"has no weights: train it again .* force=true"):
        coefficients.measured(OnePoint(tmp_path, place.name))
