"""Many runs: which they are, what is done, and who does the rest."""
