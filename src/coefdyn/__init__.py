"""Design principles for sequence models via coefficient dynamics, as experiments."""

__version__ = "0.1.0"
