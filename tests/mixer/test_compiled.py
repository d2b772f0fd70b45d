"""The compiled loops: what other forms need not promise. That they equal definition.py, in every
design, is in test_forms.py."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from coefdyn.mixer.compiled import form, kernels, known
from coefdyn.mixer.compiled.form import Sums, pairs_form, scan_form
from coefdyn.mixer.compiled.known import agrees, obstacle
from coefdyn.mixer.slots import readout as readouts
from coefdyn.mixer.slots.transition import Transition
from coefdyn.mixer.stream import Projected
from tests import ROOT, designs

DESIGNS = {
    "pairs, A = I": ("identity", "inverse_sqrt", "exp", "row_sum"),
    "pairs, A fades": ("scalar_gla", "gate", "softplus", "row_sum"),
    "pairs, A moves": ("diagonal_householder", "one", "relu", "row_sum"),
    "pairs, kernel": ("householder_free_learned", "one", "kernel_softplus", "row_sum"),
    "scan, A = I": ("identity", "inverse_sqrt", "kernel_elu_plus_one", "row_sum"),
    "scan, A decays": ("diagonal_gla", "inverse_sqrt", "identity", "one"),
    "scan, A moves": ("gated_householder", "inverse_sqrt", "identity", "one"),
}


def both_passes(
    choice: designs.Choice, sequences: slice = slice(None), sums: Sums = Sums.BESIDE
) -> list[torch.Tensor]:
    """The kernels alone, in float32: sums over pairs or time, and their gradients."""
    design = designs.mixer(choice, torch.float32).design
    own = torch.Generator().manual_seed(1)
    x, q, k, v = (
        torch.randn(4, *shape, generator=own)
        for shape in ((23, 6), (2, 23, 3), (2, 23, 3), (2, 23, 2))
    )
    stream = design.prepare(Projected(x, q, k, v, k))
    transition = stream.transition.map(lambda part: part.detach()[sequences])
    inputs = [part.detach()[sequences].requires_grad_() for part in (q, stream.k, v)]
    if design.recurrence_obstacle is None:
        y = scan_form(*inputs, transition, sums)
    else:
        y = pairs_form(*inputs, transition, design.readout, sums, design.shifts_scores).y
    weight = torch.randn(4, *y.shape[1:], generator=own)[sequences]
    return [y, *torch.autograd.grad(y, inputs, weight)]


def assert_every_bit(one: list[torch.Tensor], other: list[torch.Tensor]) -> None:
    assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("choice", DESIGNS.values(), ids=DESIGNS)
def test_every_bit_is_the_same_for_any_number_of_threads(choice: designs.Choice) -> None:
    once = both_passes(choice)
    for threads in (1, 2):
        torch.set_num_threads(threads)
        assert_every_bit(once, both_passes(choice))


@pytest.mark.parametrize("choice", DESIGNS.values(), ids=DESIGNS)
def test_dividing_by_the_row_sum_inside_is_dividing_afterwards(choice: designs.Choice) -> None:
    inside, beside = (both_passes(choice, sums=sums)[0] for sums in (Sums.DIVIDED, Sums.BESIDE))
    total = beside[..., -1:]
    expected = torch.where(total < form._least(total), 0.0, beside[..., :-1] / total)
    torch.testing.assert_close(inside, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("choice", DESIGNS.values(), ids=DESIGNS)
def test_a_sequence_does_not_depend_on_its_neighbours(choice: designs.Choice) -> None:
    part = slice(1, 3)
    assert_every_bit([x[part] for x in both_passes(choice)], both_passes(choice, part))


@pytest.mark.parametrize("choice", DESIGNS.values(), ids=DESIGNS)
def test_segments_change_no_bit(choice: designs.Choice, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = both_passes(choice)
    monkeypatch.setattr(form, "SEGMENT_NUMBERS", 1)
    assert form._segment(23, 100) == 8
    assert_every_bit(whole, both_passes(choice))


@pytest.mark.parametrize("choice", DESIGNS.values(), ids=DESIGNS)
def test_a_nan_stays_one_and_reaches_no_earlier_step(choice: designs.Choice) -> None:
    mixer = designs.mixer(choice, torch.float32)
    mixer.backend = "compiled"
    x = torch.randn(1, 9, mixer.d_model)
    x[0, 5] = torch.nan
    nan = mixer(x).isnan().all(-1)[0]
    assert nan.tolist() == [False] * 5 + [True] * 4


def loop(readout: readouts.Readout, s: torch.Tensor) -> torch.Tensor:
    """phi(s) by the kernel, as sequences of one step."""
    s = s.view(-1, 1, 1, 1)
    one = torch.ones_like(s)
    return pairs_form(s, one, one, Transition(), readout, Sums.ALONE, False).y.flatten()


SCORES = torch.cat([torch.linspace(-110, 95, 4001), torch.linspace(-1, 1, 2001)])


TINY = 100 * torch.finfo(torch.float32).tiny  # below, numbers have fewer digits


@pytest.mark.parametrize(
    ("readout", "floor"),
    [(readouts.Exp(), TINY), (readouts.Softplus(), TINY), (readouts.Sigmoid(), TINY),
     (readouts.EluPlusOne(), TINY), (readouts.Silu(), TINY), (readouts.Tanh(), TINY),
     (readouts.Relu(), TINY), (readouts.ReluSquared(), TINY),
     # torch's own differs from the true one by its rounding of 1 + erf
     (readouts.Gelu(), 1e-3), (readouts.Polynomial([1.0, -2.0, 0.5, 0.25]), 10.0)],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_a_readout_is_exact_to_float32(readout: readouts.Readout, floor: float) -> None:
    """To a few units in the last place, from the smallest to the largest numbers there are."""
    exact = readout(SCORES.double())
    error = (loop(readout, SCORES).double() - exact).abs() / (exact.abs() + floor)
    overflows = exact.abs() > torch.finfo(torch.float32).max
    assert error[~overflows].max() < 1e-6
    assert loop(readout, SCORES)[overflows].isinf().all()


def test_exp_of_what_is_not_finite() -> None:
    s = torch.tensor([-torch.inf, torch.inf, torch.nan, -1e30, 1e30])
    found = loop(readouts.Exp(), s)
    assert torch.equal(found[[0, 1, 3, 4]], torch.tensor([0.0, torch.inf, 0.0, torch.inf]))
    assert found[2].isnan()


class Steeper(readouts.Softplus):
    """Inherits the name of a loop that does not compute it."""

    def forward(self, s: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.softplus(2 * s)


class Unknown(readouts.Readout):
    def forward(self, s: torch.Tensor) -> torch.Tensor:
        return s.cosh()


def test_a_readout_that_its_loop_does_not_compute_is_never_computed_by_it() -> None:
    for right in (readouts.Softplus(), readouts.Gelu(), readouts.Silu(), readouts.TaylorExp(3)):
        assert agrees(right)
    assert not agrees(Steeper())
    mixer = designs.mixer(("identity", "one", "softplus", "row_sum"))
    mixer.design.readout = Steeper()
    x = torch.randn(1, 5, mixer.d_model, dtype=torch.float64)
    mixer.backend = "compiled"
    with pytest.raises(ValueError, match="computes something else; use auto or quadratic"):
        mixer(x)


def test_a_readout_without_a_loop_is_refused() -> None:
    assert "no compiled loop for the readout Unknown" in str(obstacle(Unknown()))
    mixer = designs.mixer(("identity", "one", "softplus", "row_sum"))
    mixer.design.readout = Unknown()
    with pytest.raises(ValueError, match="no compiled loop for the readout Unknown; use auto"):
        mixer.backend = "compiled"


def test_without_numba_the_backend_says_what_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(known, "absence", lambda: "numba is not installed (pip install numba)")
    mixer = designs.mixer(("identity", "one", "softplus", "row_sum"))
    with pytest.raises(ValueError, match=r"numba is not installed \(pip install numba\); use auto"):
        mixer.backend = "compiled"


def test_negative_and_zero_decays_have_finite_gradients() -> None:
    """The kernels take a itself, not its logarithm."""
    a = torch.tensor([1.0, -0.5, 0.0, 0.7, -1.0], dtype=torch.float64)
    q, k, v = torch.randn(3, 1, 1, 5, 2, dtype=torch.float64)
    for width in (1, 2):
        decay = a.view(1, 1, 5, 1).expand(1, 1, 5, width).contiguous().requires_grad_()
        h, y = torch.zeros(2, 2, dtype=torch.float64), []
        for t in range(5):
            h = decay[0, 0, t].expand(2).unsqueeze(-1) * h + k[0, 0, t].unsqueeze(-1) * v[0, 0, t]
            y.append(q[0, 0, t] @ h)
        expected = torch.stack(y)
        wanted = torch.autograd.grad(expected.sum(), decay)[0]
        for made in (
            form.Scan.apply(q, k, v, decay, None, None, False, Sums.ALONE, 1.0)[0],
            form.Pairs.apply(
                q,
                k,
                v,
                decay,
                None,
                None,
                None,
                False,
                readouts.Identity(),
                Sums.ALONE,
                False,
                False,
                1.0,
            )[0],
        ):
            torch.testing.assert_close(made[0, 0], expected)
            torch.testing.assert_close(torch.autograd.grad(made.sum(), decay)[0], wanted)


def test_no_place_for_a_cache_is_no_obstacle(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then kernels are compiled in memory."""
    import numba as nb

    asked = []

    class Made:
        def compile(self, _: object) -> None:
            asked.append("compile")

        def disable_compile(self) -> None: ...

        def __call__(self) -> None: ...

    def njit(cache: bool = False, **_: object) -> object:
        def wrap(_: object) -> Made:
            if cache:
                raise RuntimeError("cannot cache function: no locator available")
            return Made()

        return wrap

    monkeypatch.setattr(nb, "njit", njit)
    made = kernels.kernel.__wrapped__("scan", torch.float32)
    assert isinstance(made, Made)
    assert asked == ["compile"]


EDITED = """
import torch
from coefdyn.mixer.compiled.form import Sums, pairs_form
from coefdyn.mixer.slots.readout import Relu
from coefdyn.mixer.slots.transition import Transition
one = torch.ones(1, 1, 1, 1)
print(pairs_form(one, one, one, Transition(), Relu(), Sums.ALONE, False).y.item())
"""


@pytest.mark.slow
def test_an_edited_loop_is_compiled_again(tmp_path: Path) -> None:
    """In another process, with the cache of the one before."""
    shutil.copytree(ROOT / "src" / "coefdyn", tmp_path / "coefdyn")
    found = []
    for edit in (("", ""), ("zero if s[r, j] <= zero else s[r, j]\n", "s[r, j] + s[r, j]\n")):
        file = tmp_path / "coefdyn" / "mixer" / "compiled" / "readouts.py"
        text = file.read_text()
        assert edit[0] in text
        file.write_text(text.replace(*edit, 1) if edit[0] else text)
        environment = os.environ | {"PYTHONPATH": str(tmp_path)}
        found.append(
            subprocess.run(
                [sys.executable, "-c", EDITED], env=environment, capture_output=True, text=True,
                check=True,
            ).stdout.strip()
        )  # fmt: skip
    assert found == ["1.0", "2.0"]


def test_scan_and_pairs_are_one_function() -> None:
    q, k, v = torch.randn(3, 2, 2, 7, 3, dtype=torch.float64)
    one = scan_form(q, k, v, Transition(), Sums.BESIDE)
    other = pairs_form(q, k, v, Transition(), readouts.Identity(), Sums.BESIDE, shift=False)
    torch.testing.assert_close(one, other.y)
