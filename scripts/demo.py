"""A small real ablation, a figure and a page: python scripts/demo.py [Hydra overrides]"""

import sys

from coefdyn.cli import main

if __name__ == "__main__":
    sys.exit(main(["demo", *sys.argv[1:]]))
