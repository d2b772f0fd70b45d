"""Experiments that the paper does not have: newer architectures and tasks, and readings of it."""
