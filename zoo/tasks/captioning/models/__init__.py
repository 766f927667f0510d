"""The networks, on pictures."""
