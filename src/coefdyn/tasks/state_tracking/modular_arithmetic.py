"""Evaluate an expression modulo m: a running value, or with brackets a stack of them."""

import numpy as np
from jaxtyping import Int64
from numpy import ndarray

from coefdyn.tasks.task import IGNORE, Examples, Split, Task, check_vocabulary

PLUS, MINUS, TIMES = 0, 1, 2


class ModularArithmetic(Task):
    """An expression, then "=": the target there is its value modulo m. Nothing else is scored.

    Without `brackets`: digits with +, - or * between them, as in 1+2*3. Multiplication comes
    before addition and subtraction, as usual, and as in the benchmark of Deletang et al. 2022. So
    a sum, a term and a sign are all there is to keep: a finite state.

    With `brackets`: every operator has its own pair, as in ((1+2)*3), so there is no precedence
    left to know. The outermost operator is any of them, equally likely, and so on inside. It
    differs from the benchmark: that one has negative digits and brackets around single digits, no
    multiplication unless asked for, and splits the length instead of the operators.

    Digits and operators are uniform. Values need not be: with brackets, products make 0 the most
    frequent one. A test expression has as many digits as fit. In training the number of digits is
    uniform, from 1 to that. What is left of the sequence is blank. Tokens: digits 0 to m-1, then
    + - * = blank ( ).
    """

    def __init__(
        self,
        vocab_size: int,
        seq_len: int,
        num_train: int,
        num_test: int,
        modulus: int = 5,
        brackets: bool = False,
    ) -> None:
        super().__init__(vocab_size, seq_len, num_train, num_test)
        if type(modulus) is not int or modulus < 2:
            raise ValueError(f"task.modulus={modulus} must be a whole number of at least 2")
        if brackets not in (True, False):
            raise ValueError(f"task.brackets={brackets} must be true or false")
        least = 6 if brackets else 4
        if seq_len < least:
            raise ValueError(
                f"task.seq_len={seq_len} is too short for two digits, their operator and '=' with "
                f"task.brackets={str(brackets).lower()}; it must be at least {least}"
            )
        self.modulus, self.brackets = modulus, brackets
        self.equals, self.blank, self.opening, self.closing = range(modulus + 3, modulus + 7)
        self.digits = (seq_len + 2) // 4 if brackets else seq_len // 2  # the most that fit
        what = f"task.modulus={modulus} and task.brackets={str(brackets).lower()}"
        check_vocabulary(vocab_size, modulus + (7 if brackets else 5), what)

    @property
    def chance(self) -> float:
        return 1 / self.modulus

    def draw(self, count: int, split: Split, rng: np.random.Generator) -> Examples:
        digits = rng.integers(self.modulus, size=(count, self.digits))
        operators = rng.integers(3, size=(count, self.digits - 1))
        used = np.full(count, self.digits)
        if split == "train":
            used = rng.integers(1, self.digits + 1, size=count)
        opens = closes = np.zeros_like(digits)
        if self.brackets:
            order = rng.random(operators.shape).argsort(1)  # of evaluation
            values, opens, closes = self._nested(digits, operators, used, order)
        else:
            values = self._in_a_row(digits, operators)[np.arange(count), used - 1]
        return self._written(digits, operators, used, opens, closes, values)

    def _in_a_row(
        self, digits: Int64[ndarray, "b d"], operators: Int64[ndarray, "b o"]
    ) -> Int64[ndarray, "b d"]:
        """The value after each digit. `total` is what stands before the last term."""
        total, term = np.zeros_like(digits[:, 0]), digits[:, 0]
        values = [term]
        for digit, operator in zip(digits.T[1:], operators.T, strict=True):
            times = operator == TIMES
            total = np.where(times, total, total + term) % self.modulus
            signed = np.where(operator == MINUS, -digit, digit)
            term = np.where(times, term * digit, signed) % self.modulus
            values.append((total + term) % self.modulus)
        return np.stack(values, axis=1)

    def _nested(
        self,
        digits: Int64[ndarray, "b d"],
        operators: Int64[ndarray, "b o"],
        used: Int64[ndarray, " b"],
        order: Int64[ndarray, "b o"],
    ) -> tuple[Int64[ndarray, " b"], Int64[ndarray, "b d"], Int64[ndarray, "b d"]]:
        """The value, and how many brackets open before and close after each digit.

        Operators join neighbouring parts in the given order. A part is known by its first digit,
        which holds its value and its last digit; its last digit knows the first.
        """
        values = digits.copy()
        first = np.broadcast_to(np.arange(digits.shape[1]), digits.shape).copy()
        last, opens, closes = first.copy(), np.zeros_like(digits), np.zeros_like(digits)
        for place in order.T:
            row = np.flatnonzero(place < used - 1)
            left_end = place[row]
            begin, end = first[row, left_end], last[row, left_end + 1]
            left, right = values[row, begin], values[row, left_end + 1]
            results = np.stack([left + right, left - right, left * right]) % self.modulus
            values[row, begin] = results[operators[row, left_end], np.arange(len(row))]
            last[row, begin], first[row, end] = end, begin
            opens[row, begin] += 1
            closes[row, end] += 1
        return values[:, 0], opens, closes

    def _written(
        self,
        digits: Int64[ndarray, "b d"],
        operators: Int64[ndarray, "b o"],
        used: Int64[ndarray, " b"],
        opens: Int64[ndarray, "b d"],
        closes: Int64[ndarray, "b d"],
        values: Int64[ndarray, " b"],
    ) -> Examples:
        """The first `used` digits as tokens, then "=" and blanks."""
        rows, numbers = np.arange(len(digits)), np.arange(digits.shape[1])
        places = 2 * numbers + (opens + closes).cumsum(1) - closes
        tokens = np.full((len(digits), self.seq_len), self.blank)
        row, number = np.nonzero(numbers < used[:, None])
        tokens[row, places[row, number]] = digits[row, number]
        row, number = np.nonzero(numbers[:-1] < used[:, None] - 1)
        after = places + closes + 1  # of each digit and what closes behind it
        tokens[row, after[row, number]] = self.modulus + operators[row, number]
        end = after[rows, used - 1]
        tokens[rows, end] = self.equals
        is_digit, is_operator = tokens < self.modulus, tokens < self.equals
        behind_digit = (2 * is_digit - is_operator.astype(np.int64)).cumsum(1) == 1
        bracket = (tokens == self.blank) & (np.arange(self.seq_len) < end[:, None])
        tokens[bracket] = np.where(behind_digit, self.closing, self.opening)[bracket]
        targets = np.full_like(tokens, IGNORE)
        targets[rows, end] = values
        return Examples(tokens, targets)
