"""What this machine can use, and why not the rest: python scripts/doctor.py"""

import sys

from coefdyn.doctor import main
from coefdyn.errors import ConfigError

if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except ConfigError as error:
        sys.exit(f"error: {error}")
