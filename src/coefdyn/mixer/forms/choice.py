"""The forms a design can be computed in, and which of them is cheapest."""

from coefdyn.mixer.forms.features import feature_widths, obstacle
from coefdyn.mixer.forms.sizes import CPU
from coefdyn.mixer.slots.evolution import Evolution
from coefdyn.mixer.slots.readout import Readout

# Head width and length from which the linear form of scalar decays beats the compiled loop.
WIDE, LONG = 32, 128
FORMS = ("quadratic", "linear", "compiled", "definition")


def cheapest_form(evolution: Evolution, readout: Readout, length: int, n: int, p: int) -> str:
    """Quadratic or linear, by an estimate of multiply-adds per step and head.

    The constants are fitted to forward and backward times on a CPU, n from 8 to 128 and lengths
    from 16 to 512. For A_t = I the quadratic form prepares nothing, and the linear form has a fixed
    cost. Otherwise both prepare the same chunks, and the quadratic form does so twice.
    """
    if obstacle(readout, evolution) is not None:
        return "quadratic"
    prepared = evolution.has_decay or evolution.has_direction
    quadratic = (4.0 if prepared else 2.2) * (n + p + 8) * length / 2
    inside = min(CPU.linear.plain, length) / 2
    through_state = 1 if prepared else 2
    linear = 0.0 if prepared else 4000.0
    linear += sum(inside * (m + p) + through_state * m * p for m in feature_widths(readout, n))
    return "linear" if linear < quadratic else "quadratic"


def prefers_loops(readout: Readout, evolution: Evolution, length: int, n: int) -> bool:
    """Whether the compiled loops are faster on a CPU than the tensor forms.

    Measured forward and backward for n from 8 to 64 and lengths from 32 to 1024, with 1 and 2
    threads. The loops take 0.2 to 0.9 of the time, and up to 1.14 for wide readouts of A_t = I.
    The exception is a linear form of little more than matrix products: with wide heads it is up to
    1.6 times faster than the loops.
    """
    plain = not evolution.has_direction and not evolution.per_channel
    return not (plain and obstacle(readout, evolution) is None and n >= WIDE and length >= LONG)


def prefers_scan(readout: Readout, evolution: Evolution, length: int, n: int, p: int) -> bool:
    """Whether the compiled loop over time has less to do than the one over pairs."""
    if obstacle(readout, evolution) is not None:
        return False
    return sum(width * p for width in feature_widths(readout, n)) < (n + p) * length / 2
