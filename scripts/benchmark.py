"""Measure speed and memory against their bars: python scripts/benchmark.py suite=mixer"""

import sys

from coefdyn.cli import main

if __name__ == "__main__":
    sys.exit(main(["bench", *sys.argv[1:]]))
