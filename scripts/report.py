"""Verdicts on the paper's claims, and the page that shows everything: python scripts/report.py"""

import sys

from coefdyn.cli import main

if __name__ == "__main__":
    sys.exit(main(["report", *sys.argv[1:]]))
