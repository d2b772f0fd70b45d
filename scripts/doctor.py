"""What this machine can use, and why not the rest: python scripts/doctor.py"""

import sys

from coefdyn.cli import main

if __name__ == "__main__":
    sys.exit(main(["doctor", *sys.argv[1:]]))
