"""The forms a design can be computed in, and which of them is cheapest."""

from coefdyn.mixer.linear import chunk_size

FORMS = ("quadratic", "linear", "definition")


def cheapest_form(length: int, n: int, p: int, widths: list[int], has_direction: bool) -> str:
    """Quadratic or linear, by an estimate of multiply-adds per head; `widths` are feature widths.

    The constants are fitted to `benchmark.py suite=mixer` on a CPU.
    """
    quadratic = length * length * (n + p + 8) / 2
    size = chunk_size(has_direction, False)
    linear = sum(length * (size * (m + p) / 2 + 2 * m * p) for m in widths)
    return "linear" if linear < quadratic else "quadratic"
