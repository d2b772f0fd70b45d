"""Whether a kernel computes what our forms compute, and faster, on this machine and at this shape.

Published faults of kernels appear only at some shapes, devices and versions: NaN beyond 1024 blocks
of a grid, gradients that are off by half on one architecture. So a kernel is tried where it will be
used: at the shape of the run, and at another batch size on the other side of 1024 blocks.
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib.metadata import packages_distributions, version
from statistics import median

import torch
from torch import Tensor

from coefdyn.mixer.backends.adapter import Adapter
from coefdyn.mixer.design import Design
from coefdyn.mixer.stream import Projected

# Allowed errors of y and of each gradient, relative to its norm: so much in full precision; in half
# precision twice what rounding q, k and v alone costs, and at least as much as below.
FULL, HALF, TIMES_ROUNDING = 1e-3, 1e-2, 2.0
SMALL = 1e-2  # gradients below this part of the largest are measured against it
BLOCKS, BLOCK = 1024, 64  # blocks of a grid, and steps per block
SLOWER = 1.1  # a kernel that takes longer than this much of our form's time does not pay
REPEATS = 5

Compute = Callable[[Projected], Tensor]


@dataclass(frozen=True)
class Outcome:
    """What a trial found. `wrong`: why the kernel cannot be used; `slow`: why it does not pay;
    `errors`: the largest ones, of y and of the gradients, None if not finite; `ratio`: its time to
    our form's."""

    wrong: str | None
    slow: str | None
    errors: dict[str, float | None]
    ratio: float | None

    @property
    def reason(self) -> str | None:
        return self.wrong or self.slow


TRUSTED = Outcome(None, None, {}, None)
KNOWN: dict[str, Outcome] = {}  # by `key_of`; whoever may write files can keep it


@dataclass(frozen=True)
class Subject:
    """What is tried: a mixer's design and projections, on inputs of this shape."""

    design: Design
    project: Callable[[Tensor], Projected]
    parameters: Mapping[str, Tensor]
    heads: int
    widths: tuple[int, int]  # of a head's keys and values
    shape: tuple[int, int, int]  # batch, steps, width of the model
    like: Tensor  # a weight, for device and dtype
    half: torch.dtype | None

    @property
    def batches(self) -> tuple[int, int]:
        """The batch size of the run, and one on the other side of 1024 blocks."""
        batch, length, _ = self.shape
        per_sequence = self.heads * -(-length // BLOCK)
        beyond = BLOCKS // per_sequence + 1
        return batch, 1 if batch >= beyond else beyond


def outcome_of(adapter: Adapter, subject: Subject, otherwise: Compute) -> Outcome:
    """What a trial found, now or earlier. `otherwise` is our form that would be used instead."""
    key = key_of(adapter, subject)
    if key not in KNOWN:
        KNOWN[key] = tried(adapter, subject, otherwise)
    return KNOWN[key]


def key_of(adapter: Adapter, subject: Subject) -> str:
    """What an outcome depends on: kernel, design, shape, precision, device and versions."""
    design, device = subject.design, subject.like.device
    slots = (design.evolution, design.scaling, design.readout, design.normalization)
    feature_map = design.readout.feature_map
    batch, length, width = subject.shape
    package = adapter.module.partition(".")[0]
    versions = {name: version(name) for name in _distributions().get(package, [])}
    parts = (
        adapter.name,
        *(type(slot).__name__ for slot in slots),
        *([type(feature_map).__name__] if feature_map else []),
        *([f"polynomial {design.readout.polynomial}"] if design.readout.polynomial else []),
        f"{batch} x {length} x {width}",
        f"{subject.heads} heads of {subject.widths[0]} and {subject.widths[1]}",
        str(subject.half or subject.like.dtype).removeprefix("torch."),
        torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
        *(f"{name} {number}" for name, number in {"torch": torch.__version__, **versions}.items()),
    )
    return ", ".join(parts)


@cache
def _distributions() -> Mapping[str, list[str]]:
    """The packages that each module belongs to. Looking takes a second."""
    return packages_distributions()


def tried(adapter: Adapter, subject: Subject, otherwise: Compute) -> Outcome:
    """Try the kernel, at both batch sizes, then its speed."""
    errors: dict[str, float | None] = {}
    try:
        with torch.inference_mode(False), torch.enable_grad():
            for batch in subject.batches:
                wrong = _compare(adapter, subject, batch, errors)
                if wrong is not None:
                    return Outcome(wrong, None, errors, None)
            ratio = _ratio(adapter, subject, otherwise)
    except Exception as error:  # a package may raise anything
        message = " ".join(str(error).split())[:200]
        return Outcome(f"it fails here: {message or type(error).__name__}", None, errors, None)
    slow = f"it takes {ratio:.2f} of the time of our own form" if ratio > SLOWER else None
    return Outcome(None, slow, errors, ratio)


def _compare(
    adapter: Adapter, subject: Subject, batch: int, errors: dict[str, float | None]
) -> str | None:
    """Add the errors at this batch size to `errors`; say which is too large, if one is."""
    x, weight = _input(subject, batch)

    def results(compute: Compute) -> dict[str, Tensor]:
        y = compute(subject.project(x))
        inputs = {"x": x, **subject.parameters}
        grads = torch.autograd.grad(y, list(inputs.values()), weight, allow_unused=True)
        gradients = {
            f"gradient of {name}": grad
            for name, grad in zip(inputs, grads, strict=True)
            if grad is not None
        }
        return {"output": y.detach(), **gradients}

    quadratic, half = subject.design.quadratic, subject.half
    expected = results(quadratic)
    allowed = dict.fromkeys(expected, FULL)
    if half is not None:
        costs = _errors(results(lambda given: quadratic(_rounded(given, half))), expected)
        allowed = {name: max(HALF, TIMES_ROUNDING * cost) for name, cost in costs}
    for name, error in _errors(
        results(lambda given: adapter(subject.design, given, half)), expected
    ):
        errors[name] = max(error, errors.get(name) or 0.0) if math.isfinite(error) else None
        if not error <= allowed[name]:  # or it is NaN
            return (
                f"its {name} is off by {error:.2g} at batch {batch}, "
                f"and {allowed[name]:.2g} is allowed"
            )
    return None


def _input(subject: Subject, batch: int) -> tuple[Tensor, Tensor]:
    """Random x, and weights for a sum over y."""
    generator = torch.Generator().manual_seed(0)  # leaves the run's random numbers alone
    x = torch.randn(batch, *subject.shape[1:], generator=generator).to(subject.like)
    given = subject.project(x)
    shape = (*given.q.shape[:3], given.v.shape[-1])
    return x.requires_grad_(), torch.randn(shape, generator=generator).to(subject.like)


def _errors(found: dict[str, Tensor], expected: dict[str, Tensor]) -> Iterator[tuple[str, float]]:
    """Errors relative to the norm. A small gradient of a weight is measured against the largest."""
    norms = {name: value.double().norm() for name, value in expected.items()}
    largest = max((norm for name, norm in norms.items() if name not in ("output", "gradient of x")),
                  default=torch.tensor(0.0))  # fmt: skip
    for name, value in expected.items():
        least = 0.0 if name in ("output", "gradient of x") else SMALL * largest.item()
        size = norms[name].clamp(min=max(least, torch.finfo(torch.float32).tiny))
        yield name, ((found[name] - value).double().norm() / size).item()


def _rounded(given: Projected, half: torch.dtype) -> Projected:
    def rounded(x: Tensor) -> Tensor:
        return x.to(half).to(x.dtype)

    return replace(given, q=rounded(given.q), k=rounded(given.k), v=rounded(given.v))


def _ratio(adapter: Adapter, subject: Subject, otherwise: Compute) -> float:
    """The median time of a pass forward and backward by the kernel, over that by our form."""
    x, weight = _input(subject, subject.shape[0])

    def by_kernel(given: Projected) -> Tensor:
        return adapter(subject.design, given, subject.half)

    seconds: dict[Compute, list[float]] = {by_kernel: [], otherwise: []}
    for compute in list(seconds) * (REPEATS + 1):  # in turns; the first ones warm up
        _wait(x.device)
        started = time.perf_counter()
        y = compute(subject.project(x))
        torch.autograd.grad(y, x, weight)
        _wait(x.device)
        seconds[compute].append(time.perf_counter() - started)
    return median(seconds[by_kernel][1:]) / median(seconds[otherwise][1:])


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
