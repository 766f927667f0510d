"""The networks: listeners, and the speller that attends to them."""
