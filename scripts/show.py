"""The record of a run, or what differs between two: python scripts/show.py <run> [<run>]"""

import sys

from coefdyn.cli import main

if __name__ == "__main__":
    sys.exit(main(["show", *sys.argv[1:]]))
