"""The runs of an experiment: python scripts/sweep.py experiment=principle2_readout scale=lite"""

import sys

from coefdyn.cli import main

if __name__ == "__main__":
    sys.exit(main(["sweep", *sys.argv[1:]]))
