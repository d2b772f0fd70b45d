"""Check a design against the six principles, before it is trained."""
