"""--help of a command: what it does, examples, choices and keys, read from its file in conf/."""

import re
import textwrap

from coefdyn.config.plugins import CONF, groups, options

WIDTH = 100
SECTIONS = ("optimizer", "trainer")  # sections with their own files
NOT_SHOWN = ("defaults:", "hydra:")  # blocks that configure Hydra


def usage(name: str, keys: str, summary: str) -> str:
    """The help text of a command. `keys` names a file of conf/.

    The file's header has sentences, and examples indented by three spaces. The comment behind a
    key explains it.
    """
    lines = (CONF / f"{keys}.yaml").read_text().splitlines()
    size = next((i for i, line in enumerate(lines) if not line.startswith("#")), len(lines))
    header = [line.removeprefix("#") for line in lines[:size]]
    words = [line.strip() for line in header if not line.startswith("   ")]
    examples = [re.sub(r"^python scripts/\w+\.py", f"coefdyn {name}", line.strip())
                for line in header if line.startswith("   ")]  # fmt: skip
    body = _body(lines[size:])
    for section in SECTIONS if keys == "train" else ():
        file = min((CONF / section).glob("*.yaml"))  # all files have the same keys
        body += [f"{section}:", *(f"  {line}" for line in _body(file.read_text().splitlines()))]
    parts = [
        [f"coefdyn {name} [key=value ...]: {summary}", *words],
        ["Examples", *(f"  {line}" for line in examples)],
        _choices() if keys == "train" else [],
        ["Keys, their defaults and what they are", *(part for line in body for part in _key(line))],
    ]
    return "\n\n".join("\n".join(part) for part in parts if len(part) > 1)


def _body(lines: list[str]) -> list[str]:
    """The lines of a file without Hydra's blocks, comments and blank lines."""
    body, shown = [], True
    for line in lines:
        if line[:1].strip():
            shown = not line.startswith(NOT_SHOWN)
        if shown and line.strip() and not line.startswith(("#", "_")):
            body.append(line)
    return body


def _key(line: str) -> list[str]:
    """A key with its comment, which is wrapped below the key if it is long."""
    line = re.sub(r"\$\{scale\.[^#]*\}", "by scale", line)
    setting, mark, comment = line.partition(" # ")
    if len(line) + 2 <= WIDTH or not mark:
        return [f"  {line}"]
    indent = " " * (len(setting) - len(setting.lstrip()) + 6)
    return [f"  {setting}", *textwrap.wrap(comment, WIDTH, initial_indent=indent,
                                           subsequent_indent=indent)]  # fmt: skip


def _choices() -> list[str]:
    """Every group of conf/ with the files to choose from."""
    lines = ["Choices, as in model=gla model/readout=relu"]
    for group in (*groups(()), "experiment"):
        if names := options(group):
            indent = " " * 23
            text = textwrap.fill(", ".join(names), WIDTH, initial_indent=indent,
                                 subsequent_indent=indent).lstrip()  # fmt: skip
            lines.append(f"  {group:<20} {text}")
    return lines
