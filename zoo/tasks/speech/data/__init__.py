"""Recordings as they are read, their features, and the batches that are made of them."""
