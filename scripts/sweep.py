"""The runs of an experiment: python scripts/sweep.py experiment=principle2_readout scale=lite"""

import sys

from coefdyn.cli.sweep import main
from coefdyn.errors import ConfigError

if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except ConfigError as error:
        sys.exit(f"error: {error}")
