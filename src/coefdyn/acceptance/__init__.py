"""What a machine with a GPU must show before its numbers are trusted, in one command."""
