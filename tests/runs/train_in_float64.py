"""scripts/train.py in double precision: what differs by rounding alone stays together."""

import sys

import torch

from coefdyn.cli.train import main

if __name__ == "__main__":
    torch.set_default_dtype(torch.float64)
    sys.exit(main(sys.argv[1:]))
