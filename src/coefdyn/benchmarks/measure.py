"""Timings that can be compared on a noisy machine, and peak memory."""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np
import torch

Run = Callable[[], object]


@dataclass(frozen=True)
class Result:
    """One case: `value` against `baseline`; `ok` if their ratio is at most `bar`."""

    suite: str
    case: str
    value: float
    unit: str
    baseline: float
    ratio: float
    bar: float
    ok: bool
    interval: tuple[float, float] | None = None  # of the ratio, 95 % confidence

    def as_dict(self) -> dict[str, object]:
        fields = asdict(self)
        return {k: v for k, v in fields.items() if v is not None}


def result(suite: str, case: str, value: float, unit: str, baseline: float, bar: float) -> Result:
    ratio = value / baseline
    return Result(suite, case, value, unit, baseline, ratio, bar, ratio <= bar)


def result_of_pairs(
    suite: str,
    case: str,
    values: Sequence[float],
    unit: str,
    baselines: Sequence[float],
    bar: float,
) -> Result:
    """The ratio of medians, with a bootstrap interval over the pairs."""
    pairs = np.array([values, baselines])
    chosen = np.random.default_rng(0).integers(pairs.shape[1], size=(2000, pairs.shape[1]))
    ratios = np.divide(*np.median(pairs[:, chosen], axis=-1))
    low, high = np.quantile(ratios, [0.025, 0.975])
    value, baseline = np.median(pairs, axis=1).tolist()
    plain = result(suite, case, value, unit, baseline, bar)
    return replace(plain, interval=(float(low), float(high)))


def interleaved_medians(cases: Mapping[str, Run], repeats: int) -> dict[str, float]:
    """Median milliseconds of each case, run in turn so that slow phases of the machine hit all."""
    for run in cases.values():
        run()
    times: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(repeats):
        for name, run in cases.items():
            start = time.perf_counter()
            run()
            times[name].append(1e3 * (time.perf_counter() - start))
    return {name: statistics.median(values) for name, values in times.items()}


def peak_megabytes(run: Run) -> float:
    """The most memory of tensors alive at one time during `run`, by torch's profiler."""
    run()
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True
    ) as profile:
        run()
    assert profile.profiler is not None
    records = [e for e in profile.profiler.kineto_results.events() if e.name() == "[memory]"]
    total = peak = 0
    for record in sorted(records, key=lambda record: record.start_ns()):
        total += record.nbytes()
        peak = max(peak, total)
    return peak / 2**20
