"""A design against the six principles: python scripts/check_design.py model=gla"""

import sys

from coefdyn.cli.check import main
from coefdyn.errors import ConfigError

if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except ConfigError as error:
        sys.exit(f"error: {error}")
