"""Many runs from one command: sweeps and searches, each run a fresh process."""
