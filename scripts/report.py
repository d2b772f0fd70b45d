"""Verdicts on the paper's claims, and the page that shows everything: python scripts/report.py"""

import sys

from coefdyn.cli.figure import report
from coefdyn.errors import ConfigError

if __name__ == "__main__":
    try:
        sys.exit(report(sys.argv[1:]))
    except ConfigError as error:
        sys.exit(f"error: {error}")
