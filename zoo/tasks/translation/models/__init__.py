"""The networks, on padded texts."""
