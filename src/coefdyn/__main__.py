"""`python -m coefdyn`: the command line."""

import sys

from coefdyn.cli import main

sys.exit(main())
