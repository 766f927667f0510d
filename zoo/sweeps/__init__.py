"""Many runs from one command, each in a fresh process: sweeps, which run every combination of values, and searches."""
