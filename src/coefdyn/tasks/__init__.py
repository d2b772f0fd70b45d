"""The six MAD tasks: synthetic sequences that are a pure function of (settings, split, seed)."""
