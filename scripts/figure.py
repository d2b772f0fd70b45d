"""Tables and figures from records: python scripts/figure.py experiment=architectures scale=lite"""

import sys

from coefdyn.cli.figure import figure
from coefdyn.errors import ConfigError

if __name__ == "__main__":
    try:
        sys.exit(figure(sys.argv[1:]))
    except ConfigError as error:
        sys.exit(f"error: {error}")
