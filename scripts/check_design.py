"""A design against the six principles: python scripts/check_design.py model=gla"""

import sys

from coefdyn.cli import main

if __name__ == "__main__":
    sys.exit(main(["check", *sys.argv[1:]]))
