"""The sections of a configuration as dataclasses, and how a section is read into one.

The files of conf/ say what each value is for.
"""

import dataclasses
import math
import types
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from coefdyn.errors import ConfigError

T = TypeVar("T")
Slot = Mapping[str, Any]  # a _target_ and its arguments


@dataclass(frozen=True)
class Limits:
    """The range of a number: from `least`, or above `above`, to `most`."""

    least: int | None = None
    above: int | None = None
    most: int | None = None

    def keeps(self, value: Any) -> bool:
        low = self.least is None or value >= self.least
        return low and (self.above is None or value > self.above) and (
            self.most is None or value <= self.most
        )  # fmt: skip

    def __str__(self) -> str:
        if self.most is not None:
            return f" from {self.least} to {self.most}"
        return f" of at least {self.least}" if self.above is None else f" above {self.above}"


Count = Annotated[int, Limits(least=1)]
Whole = Annotated[int, Limits(least=0)]
Seed = Annotated[int, Limits(least=0, most=2**63 - 1)]
Positive = Annotated[float, Limits(above=0)]
Format = Literal["table", "json"]


@dataclass(frozen=True)
class Paths:
    results: str
    data: str


@dataclass(frozen=True)
class Results:
    """The `paths` of commands that read results."""

    results: str


@dataclass(frozen=True)
class Devices:
    """Where and how a run is computed."""

    accelerator: Literal["cpu", "cuda"]
    strategy: Literal["single", "ddp"]
    threads: Count | None
    accumulate: Count
    recompute: bool
    compile: bool | Literal["auto"]


@dataclass(frozen=True)
class Trainer:
    max_epochs: Count
    batch_size: Count
    warmup_steps: Whole
    schedule: Literal["cosine", "constant"]
    clip: Positive | None
    precision: Literal["fp32", "bf16-mixed"]
    stop_at: Positive | None
    test_every: Count
    checkpoint_seconds: Positive
    devices: Devices


@dataclass(frozen=True)
class Population:
    mode: Literal["sequential", "fused", "auto"]
    lr: list[float] | None
    weight_decay: list[float] | None
    seed: list[int] | None


@dataclass(frozen=True)
class Model:
    """Sizes, switches and slots. `mixer` is a foreign sequence mixer, which replaces the four slots
    of a design and their preprocessing."""

    vocab_size: Count
    max_length: Count
    d_model: Count
    n_state: Count
    d_value: Count
    n_heads: Count
    n_layers: Count
    d_mlp: Count | None
    unit_qk: bool
    max_strength: float
    factor: float
    base: float
    backend: str
    init: str
    evolution: Slot
    scaling: Slot
    readout: Slot
    normalization: Slot
    block: Slot
    preprocess: Slot
    position: Slot
    mixer: Slot | None
    pattern: list[str] | None = None
    layers: Slot | None = None  # the slots of each preset in `pattern`


@dataclass(frozen=True)
class Settings:
    """conf/train.yaml, composed."""

    seed: Seed
    force: bool
    check: bool
    plugins: list[str]
    paths: Paths
    model: Model
    task: Slot
    optimizer: Slot
    trainer: Trainer
    population: Population
    logger: Slot | None
    scale: Mapping[str, Any]
    grid: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Slurm:
    partition: str | None
    account: str | None
    time: str | int | None
    cpus: Count | None
    mem: str | int | None
    gpus: Count | None
    pack: Count
    jobs: Count
    max_parallel: Count | None
    grace: Count
    extra: list[str]


@dataclass(frozen=True)
class Sweep:
    action: Literal["plan", "run", "status", "submit", "decide", "archive", "clean"]
    format: Format
    jobs: Count
    budget: Positive | None
    where: Literal["here", "slurm"]
    into: str | None
    slurm: Slurm


@dataclass(frozen=True)
class Figures:
    paths: Results
    name: str
    source: Literal["auto", "records", "tables"]


@dataclass(frozen=True)
class Report:
    paths: Results
    format: Literal["page", "json", "table", "markdown"]


@dataclass(frozen=True)
class Check:
    models: list[str] | None
    format: Format
    strict: bool
    out: str | None
    tokens: list[int] | None


@dataclass(frozen=True)
class Benchmark:
    suite: str
    format: Format
    threads: Count
    repeats: Count


@dataclass(frozen=True)
class Doctor:
    full: bool
    parts: list[str] | None
    paths: Results
    format: Format


@dataclass(frozen=True)
class Show:
    paths: Results
    format: Format


def read(kind: type[T], values: Any, where: str = "") -> T:
    """A section as its dataclass; ConfigError names the first wrong value."""
    if not isinstance(values, Mapping):
        raise ConfigError(f"{where}={values} must be a section of the configuration")
    fields = {field.name: field for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
    needed = {n for n, field in fields.items() if field.default is dataclasses.MISSING}
    unknown, missing = values.keys() - fields.keys(), needed - values.keys()
    section = where or "the configuration"
    if unknown:
        names = ", ".join(sorted(map(str, unknown)))
        raise ConfigError(f"{section} does not know: {names}; it has {', '.join(fields)}")
    if missing:
        raise ConfigError(f"{section} lacks: {', '.join(sorted(missing))}")
    hints = get_type_hints(kind, include_extras=True)
    dot = f"{where}." if where else ""
    return kind(**{name: _value(hints[name], values[name], dot + name) for name in values})


def _value(hint: Any, value: Any, where: str) -> Any:
    """`value`, if it fits the annotation `hint` of its field."""
    if get_origin(hint) in (Union, types.UnionType):
        *kinds, last = get_args(hint)
        if value is None and last is type(None):
            return None
        for kind in kinds if last is type(None) else (*kinds, last):
            if dataclasses.is_dataclass(kind) or _fits(kind, value):
                return _value(kind, value, where)
    elif dataclasses.is_dataclass(hint):
        return read(hint, value, where)  # type: ignore[arg-type]
    elif _fits(hint, value):
        check_finite(value, where)
        return float(value) if _plain(hint) is float else value
    if get_origin(hint) is Literal:
        known = ", ".join(get_args(hint))
        raise ConfigError(f"{where}={value} is not known; choose from {known}")
    group = where.replace(".", "/")
    if isinstance(value, str) and (hint == Slot or hint == Slot | None):
        raise ConfigError(f"{where}={value} names no file; a choice is made by {group}={value}")
    raise ConfigError(f"{where}={value} must be {_words(hint)}")


def check_finite(value: Any, where: str) -> None:
    """Refuse an infinite or NaN value now: writing the record would fail after the training."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            check_finite(inner, f"{where}.{key}")
    elif isinstance(value, float) and not math.isfinite(value):
        raise ConfigError(f"{where}={value} is infinite or NaN; it must be a finite number")


def _plain(hint: Any) -> Any:
    return get_args(hint)[0] if get_origin(hint) is Annotated else hint


def _fits(hint: Any, value: Any) -> bool:
    plain, origin = _plain(hint), get_origin(hint)
    if origin is Literal:
        return value in get_args(hint)
    if origin is list:
        return isinstance(value, list) and all(_fits(get_args(hint)[0], v) for v in value)
    if hint is Slot or origin is Slot.__origin__:  # type: ignore[attr-defined]
        return isinstance(value, Mapping)
    if plain is float:
        fitting = type(value) in (int, float) and math.isfinite(value)
    else:
        fitting = type(value) is plain
    return fitting and all(limits.keeps(value) for limits in get_args(hint)[1:])


WORDS = {int: "a whole number", float: "a finite number", bool: "true or false", str: "text"}


def _words(hint: Any) -> str:
    """An annotation in words, for error messages."""
    if get_origin(hint) in (Union, types.UnionType):
        parts = ["null" if kind is type(None) else _words(kind) for kind in get_args(hint)]
        return ", or ".join(dict.fromkeys(parts))
    if get_origin(hint) is list:
        plural = {int: "whole numbers", float: "numbers", str: "words"}
        return f"a list of {plural[get_args(hint)[0]]}"
    if get_origin(hint) is Literal:
        return " or ".join(get_args(hint))
    words = WORDS.get(_plain(hint), "a section of the configuration")
    limits = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
    words = "a number" if limits and _plain(hint) is float else words
    return words + "".join(map(str, limits))
