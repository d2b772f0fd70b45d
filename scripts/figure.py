"""Tables and figures from records: python scripts/figure.py experiment=architectures scale=lite"""

import sys

from coefdyn.cli import main

if __name__ == "__main__":
    sys.exit(main(["figure", *sys.argv[1:]]))
