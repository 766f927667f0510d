"""The networks, on packed batches of texts."""
