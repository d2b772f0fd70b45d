"""coefdyn train in double precision: what differs by rounding alone stays together."""

import sys

import torch

from coefdyn.cli import main

if __name__ == "__main__":
    torch.set_default_dtype(torch.float64)
    sys.exit(main(["train", *sys.argv[1:]]))
