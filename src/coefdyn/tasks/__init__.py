"""Tasks: text, and the six of MAD, whose data are a pure function of (settings, split, seed)."""
