"""mkdocs hook: equations between dollars become MathML while the site is built, so that no page
needs a script or a network for them; and the pictures of docs/pictures are drawn."""

import re
import shutil
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert

import coefdyn
from coefdyn.config.build import build_task
from coefdyn.config.compose import compose

HERE = Path(__file__).parent
TASKS = ("in_context_recall", "noisy_recall", "fuzzy_recall", "selective_copying", "memorization",
         "compression")  # fmt: skip
COEFFICIENTS = HERE.parent / "results" / "figures" / "lite" / "principle2_coefficients.png"

# Code is left alone: its dollars are the shell's.
CODE = re.compile(r"(```.*?```|`[^`\n]*`)", re.DOTALL)
BLOCK, INLINE = re.compile(r"\$\$(.+?)\$\$", re.DOTALL), re.compile(r"\$([^$\n]+?)\$")


def on_pre_build(**_: Any) -> None:
    place = HERE / "pictures"
    place.mkdir(exist_ok=True)
    tasks = {name: build_task(compose([f"task={name}", "scale=smoke"])) for name in TASKS}
    coefdyn.plot.examples(tasks, seed=1).savefig(place / "tasks.png", dpi=160)
    shutil.copyfile(COEFFICIENTS, place / "coefficients.png")


def on_page_markdown(markdown: str, **_: Any) -> str:
    parts = CODE.split(markdown)
    return "".join(part if i % 2 else _equations(part) for i, part in enumerate(parts))


def _equations(text: str) -> str:
    text = BLOCK.sub(lambda match: f"\n{convert(match[1].strip(), display='block')}\n", text)
    # Without the span, an equation at the start of a line would become a paragraph.
    return INLINE.sub(lambda match: f"<span>{convert(match[1])}</span>", text)
