"""Measure speed and memory against their bars: python scripts/benchmark.py suite=mixer"""

import sys

from coefdyn.cli.bench import main
from coefdyn.errors import ConfigError

if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except ConfigError as error:
        sys.exit(f"error: {error}")
