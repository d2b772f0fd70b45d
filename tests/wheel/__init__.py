"""What a user has who installs the wheel, and nothing else of ours: `make test-wheel`."""
