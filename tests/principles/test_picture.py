"""The picture of a design: what its panels hold."""

import pytest
from matplotlib.figure import Figure

from coefdyn.config.build import readout
from coefdyn.plot.style import BLUE, RED
from coefdyn.principles.picture import _readout


@pytest.mark.parametrize(
    ("name", "title", "ends"),
    [
        ("relu", "$\\phi(s)$, near zero in red", [(-8.0, 0.001)]),
        ("identity", "$\\phi(s)$, near zero in red", [(-0.001, 0.059)]),
        ("kernel_relu", "$\\psi(s)$ of a kernel", []),
    ],
)
def test_the_panel_of_a_readout(name: str, title: str, ends: list[tuple[float, float]]) -> None:
    """The curve, and on the axis where it is near zero, wide enough to be seen."""
    axes = Figure().subplots()
    _readout(axes, readout(name))
    curve, zero = axes.lines
    s, phi = curve.get_data()
    assert (s[0], s[-1], curve.get_color()) == (-8, 4, BLUE)
    assert phi[-1] == pytest.approx(4)
    assert list(zero.get_ydata()) == [0, 0]
    red = [segment for part in axes.collections for segment in part.get_segments()]
    assert [tuple(segment[:, 0]) for segment in red] == [pytest.approx(pair) for pair in ends]
    assert all((segment[:, 1] == 0).all() for segment in red)
    assert all(
        tuple(part.get_color()[0][:3]) == pytest.approx(_rgb(RED)) for part in axes.collections
    )
    assert (axes.get_title(), axes.get_xlabel(), axes.get_ylim()) == (title, "$s$", (-2, 4))


def _rgb(colour: str) -> tuple[float, ...]:
    return tuple(int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
