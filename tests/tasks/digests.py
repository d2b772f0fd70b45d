"""Which data each task has at scale=smoke: sha256 of the arrays, for two seeds.

`python -m tests.tasks.digests` writes them anew: only for a change that is meant to move data,
which the CHANGELOG then marks [results].
"""

import hashlib
import json
import sys
from pathlib import Path

from coefdyn.config.build import build_task
from coefdyn.config.compose import compose
from coefdyn.config.plugins import options
from coefdyn.tasks.source import load
from coefdyn.tasks.task import Split

DIGESTS = Path(__file__).parents[1] / "assets" / "data.json"
GENERATED = [name for name in options("task") if name != "wikitext103"]
SPLITS: tuple[Split, ...] = ("train", "test")
SEEDS = (0, 1)


def digests(name: str) -> dict[str, list[str]]:
    """Split and seed -> of inputs and of targets, as little-endian int64, row by row."""
    config = compose([f"task={name}", "scale=smoke"])
    task, source = build_task(config), config.settings.task["source"]
    return {
        f"{split} {seed}": [
            hashlib.sha256(side.astype("<i8").tobytes()).hexdigest()
            for side in load(task, split, seed, source)
        ]
        for split in SPLITS
        for seed in SEEDS
    }


def main() -> int:
    DIGESTS.write_text(json.dumps({name: digests(name) for name in GENERATED}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
