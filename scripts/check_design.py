"""A design against the six principles: python scripts/check_design.py model=gla"""

import sys

from coefdyn.errors import ConfigError
from coefdyn.principles.command import main

if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except ConfigError as error:
        sys.exit(f"error: {error}")
