"""What is measured of untrained models: their sense of order, and how coefficients grow."""

import pandas as pd
import pytest

from coefdyn.benchmarks import growth, order

ONE_LAYER, TWO_LAYERS = 1, 2


@pytest.fixture(scope="module")
def orders() -> pd.DataFrame:
    return order.measured("smoke", seeds=1)


@pytest.fixture(scope="module")
def largest() -> pd.DataFrame:
    return growth.measured("smoke", seeds=1)


def of(orders: pd.DataFrame, evolution: str, position: str, layer: int) -> pd.Series:
    chosen = (orders["evolution"] == evolution) & (orders["position"] == position)
    return orders[chosen & (orders["layer"] == layer)]["order"]


def test_without_positions_one_layer_with_identity_knows_no_order(orders: pd.DataFrame) -> None:
    assert of(orders, "identity", "none", ONE_LAYER).max() < 1e-12


def test_a_second_layer_knows_order_by_the_causal_mask(orders: pd.DataFrame) -> None:
    assert of(orders, "identity", "none", TWO_LAYERS).min() > 0.05


@pytest.mark.parametrize("way", [("constant", "none"), ("identity", "learned")])
def test_decay_and_positions_show_order_to_one_layer(
    orders: pd.DataFrame, way: tuple[str, str]
) -> None:
    assert of(orders, *way, ONE_LAYER).min() > 0.01


def line(largest: pd.DataFrame, normalization: str, readout: str) -> pd.Series:
    chosen = (largest["normalization"] == normalization) & (largest["readout"] == readout)
    return largest[chosen].set_index("index")["largest"]


@pytest.mark.parametrize("readout", ["softplus", "relu"])
def test_growth_is_that_of_the_evolution_and_a_power_takes_it_back(
    largest: pd.DataFrame, readout: str
) -> None:
    c, ends = 1.4, [8, 15]
    grown, tamed = (line(largest, eta, readout)[ends] for eta in ("one", "power"))
    assert grown.iloc[1] / grown.iloc[0] == pytest.approx(c**7, rel=0.5)
    assert tamed.iloc[1] / tamed.iloc[0] == pytest.approx(1, rel=0.5)


def test_a_power_does_not_tame_exp_and_the_sum_does(largest: pd.DataFrame) -> None:
    assert line(largest, "power", "exp").iloc[-1] > 10
    assert line(largest, "row_sum", "exp").max() <= 1 + 1e-12
