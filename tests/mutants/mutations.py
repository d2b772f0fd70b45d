"""Plausible bugs: small changes of a Python or YAML file, each a mutant of it.

Mutants are edits of the text, so that comments and layout stay. None changes a docstring, an
annotation or the words of a message: no test should depend on those.
"""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

OTHER_OPERATOR: dict[type[ast.AST], tuple[str, str]] = {  # node -> (as written, what to write)
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "/"),
    ast.Div: ("/", "*"),
    ast.FloorDiv: ("//", "*"),
    ast.Mod: ("%", "*"),
    ast.Pow: ("**", "*"),
    ast.BitAnd: ("&", "|"),
    ast.BitOr: ("|", "&"),
    ast.And: ("and", "or"),
    ast.Or: ("or", "and"),
}
OTHER_NAME = {
    "min": "max", "max": "min", "any": "all", "all": "any", "amax": "amin", "amin": "amax",
    "maximum": "minimum", "minimum": "maximum", "mean": "sum", "first": "last", "argmax": "argmin",
    "exp": "expm1", "log": "log1p", "tril": "triu", "cumsum": "cumprod", "floor": "ceil",
    "zeros_like": "ones_like", "zeros": "ones", "ones": "zeros",
}  # fmt: skip
SPEAKING = ("log", "logging", "warnings", "print", "Literal", "cast")  # calls for people, or types
# Arguments that say how a picture looks, and those that only check what is right already.
LOOKS = {"fontsize", "linewidth", "markersize", "zorder", "alpha", "figsize", "xytext", "rotation",
         "fraction", "columns", "height", "width_ratios", "strict", "dpi",
         "capsize", "pad"}  # fmt: skip


@dataclass(frozen=True)
class Mutant:
    """`name` stays the same while the mutated place does, wherever in its file that stands."""

    name: str
    path: str
    lines: tuple[int, int]  # of the statement it changes, first and last
    start: int
    end: int
    new: str

    def applied(self, text: str) -> str:
        return text[: self.start] + self.new + text[self.end :]


@dataclass(frozen=True)
class _Edit:
    start: int
    end: int
    new: str
    lines: tuple[int, int]
    place: str  # the function or key around it


def mutants_of(root: Path, path: str) -> list[Mutant]:
    """Every mutant of a file."""
    text = (root / path).read_text()
    edits = _python_edits(text) if path.endswith(".py") else _yaml_edits(text, root / path)
    seen: Counter[str] = Counter()
    mutants = []
    for edit in sorted(edits, key=lambda e: (e.start, e.end, e.new)):
        name = f"{path}:{edit.place}: {_short(text[edit.start : edit.end])} -> {_short(edit.new)}"
        seen[name] += 1
        if seen[name] > 1:
            name += f" #{seen[name]}"
        mutants.append(Mutant(name, path, edit.lines, edit.start, edit.end, edit.new))
    return mutants


def _short(text: str) -> str:
    return " ".join(text.split())[:60]


def _python_edits(text: str) -> Iterator[_Edit]:
    yield from _Walk(text).edits(ast.parse(text), "module", (1, 1))


class _Walk:
    """Through a syntax tree, past what only people read."""

    def __init__(self, text: str) -> None:
        # ast counts columns in bytes
        self.text = text
        self.line_starts = [0]
        for line in text.splitlines(keepends=True):
            self.line_starts.append(self.line_starts[-1] + len(line))
        self.lines = text.splitlines()

    def at(self, line: int, column: int) -> int:
        before = self.lines[line - 1].encode()[:column].decode()
        return self.line_starts[line - 1] + len(before)

    def span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self.at(node.lineno, node.col_offset), self.at(node.end_lineno, node.end_col_offset)

    def edits(self, node: ast.AST, place: str, lines: tuple[int, int]) -> Iterator[_Edit]:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            place = node.name if place == "module" else f"{place}.{node.name}"
        if isinstance(node, ast.stmt) and not isinstance(node, ast.FunctionDef | ast.ClassDef):
            last = node.end_lineno or node.lineno
            body = getattr(node, "body", None)
            if body:  # of an if, for or with: its head
                last = max(node.lineno, body[0].lineno - 1)
            lines = (node.lineno, last)
        for start, end, new in self._changes(node):
            yield _Edit(start, end, new, lines, place)
        for child in _children(node):
            yield from self.edits(child, place, lines)

    def _changes(self, node: ast.AST) -> Iterator[tuple[int, int, str]]:
        if isinstance(node, ast.BinOp):
            yield from self._operator(node.left, node.right, node.op)
        elif isinstance(node, ast.BoolOp):
            for left, right in zip(node.values, node.values[1:], strict=False):
                yield from self._operator(left, right, node.op)
                yield self.span(left)[0], self.span(right)[0], ""  # drop a conjunct
            yield self.span(node.values[-2])[1], self.span(node.values[-1])[1], ""
        elif isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            for left, right, op in zip(sides, sides[1:], node.ops, strict=False):
                yield from self._operator(left, right, op)
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub):
            start, _ = self.span(node)
            yield start, self.span(node.operand)[0], ""
        elif isinstance(node, ast.Constant):
            yield from self._constant(node)
        elif isinstance(node, ast.Name | ast.Attribute):
            yield from self._name(node)
        elif isinstance(node, ast.Tuple | ast.List):
            yield from self._fewer(node)
        elif isinstance(node, ast.If) and isinstance(node.test, ast.expr):
            yield *self.span(node.test), "False"
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            if not _speaks(node.value) and "super()" not in ast.unparse(node):
                yield *self.span(node), "pass"
        elif isinstance(node, ast.AugAssign):
            middle = self.text[self.span(node.target)[1] : self.span(node.value)[0]]
            yield self.span(node.target)[1], self.span(node.value)[0], re.sub(r"\S+=", "=", middle)

    def _operator(
        self, left: ast.expr, right: ast.expr, op: ast.AST
    ) -> Iterator[tuple[int, int, str]]:
        if type(op) not in OTHER_OPERATOR:
            return
        old, new = OTHER_OPERATOR[type(op)]
        begin, end = self.span(left)[1], self.span(right)[0]
        found = re.search(rf"(?<![\w<>=!*/]){re.escape(old)}(?![\w=*/])", self.text[begin:end])
        if found:
            yield begin + found.start(), begin + found.end(), new

    def _constant(self, node: ast.Constant) -> Iterator[tuple[int, int, str]]:
        start, end = self.span(node)
        if isinstance(node.value, bool):
            yield start, end, str(not node.value)
        elif isinstance(node.value, int):
            yield start, end, str(node.value + 1 if node.value < 20 else 2 * node.value)
        elif isinstance(node.value, float):
            yield start, end, repr(_other(node.value))

    def _name(self, node: ast.Name | ast.Attribute) -> Iterator[tuple[int, int, str]]:
        name = node.id if isinstance(node, ast.Name) else node.attr
        if name in OTHER_NAME and isinstance(node.ctx, ast.Load):
            _, end = self.span(node)
            yield end - len(name), end, OTHER_NAME[name]

    def _fewer(self, node: ast.Tuple | ast.List) -> Iterator[tuple[int, int, str]]:
        if len(node.elts) > 2 and isinstance(node.ctx, ast.Load):
            yield self.span(node.elts[-2])[1], self.span(node.elts[-1])[1], ""
            yield self.span(node.elts[0])[0], self.span(node.elts[1])[0], ""


def _other(value: float) -> float:
    """By so much that it matters: tolerances are meant to an order of magnitude."""
    return 1.0 if not value else value * (1.5 if abs(value) > 1e-5 else 100.0)


def _children(node: ast.AST) -> Iterator[ast.AST]:
    """Without annotations, docstrings, messages, imports and what checks itself."""
    if isinstance(node, ast.Import | ast.ImportFrom | ast.Assert | ast.Raise | ast.JoinedStr):
        return
    if isinstance(node, ast.Call) and _speaks(node):
        return
    if isinstance(node, ast.keyword) and node.arg in LOOKS:
        return
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "bases"):
            continue
        if isinstance(node, ast.Subscript) and isinstance(value, ast.Tuple):
            value = value.elts  # an index with an axis less would not run
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield child


def _speaks(call: ast.Call) -> bool:
    root = call.func
    while isinstance(root, ast.Attribute):
        root = root.value
    return isinstance(root, ast.Name) and root.id in SPEAKING


_NUMBER = re.compile(r"(?<![\w.$])-?\d+(?:\.\d+)?(?:e-?\d+)?(?![\w.])")
_CHOICE = re.compile(r"^( +- (?:override )?/?([\w/]+): )(\w+)$")


def _yaml_edits(text: str, path: Path) -> Iterator[_Edit]:
    """Other numbers, truths turned round, the neighbouring choice of a group, a value of an axis
    left out."""
    offset = 0
    for number, line in enumerate(text.splitlines(keepends=True), 1):
        body = line.split(" #")[0].rstrip("\n")
        place = body.split(":")[0].strip(" -")
        where = ((number, number), place)
        if not line.lstrip().startswith("#") and not place.startswith("_target_"):
            for start, end, new in _line_changes(body, path):
                yield _Edit(offset + start, offset + end, new, *where)
        offset += len(line)


def _line_changes(line: str, path: Path) -> Iterator[tuple[int, int, str]]:
    colon = line.find(":") + 1
    for found in _NUMBER.finditer(line, colon):
        value = found[0]
        whole = re.fullmatch(r"-?\d+", value)
        new = str(int(value) + 1) if whole else f"{_other(float(value)):g}"
        yield found.start(), found.end(), new
    for old, new in (("true", "false"), ("false", "true")):
        for found in re.finditer(rf": {old}\b", line):
            yield found.start(), found.end(), f": {new}"
    axis = re.search(r": (\w+(?:,\w+)+)$", line)
    if axis:
        yield axis.start(1) + axis[1].rindex(","), axis.end(1), ""
    choice = _CHOICE.match(line)
    if choice and choice[2] not in ("hydra/hydra_logging", "hydra/job_logging"):
        yield from _other_choice(choice, path)


def _other_choice(choice: re.Match[str], path: Path) -> Iterator[tuple[int, int, str]]:
    conf = next(parent for parent in path.parents if parent.name == "conf")
    for group in (conf / choice[2], path.parent / choice[2]):
        stems = sorted(file.stem for file in group.glob("*.yaml"))
        if choice[3] in stems and len(stems) > 1:
            new = stems[(stems.index(choice[3]) + 1) % len(stems)]
            yield choice.start(3), choice.end(3), new
            return
