"""Train one design on one task: python scripts/train.py model=gla task=noisy_recall scale=lite

With -m it trains every combination of comma-separated values, one after the other.
"""

import sys

from coefdyn.cli import main

if __name__ == "__main__":
    sys.exit(main(["train", *sys.argv[1:]]))
