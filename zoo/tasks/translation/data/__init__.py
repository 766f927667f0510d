"""Texts with their translations: sources, and batches of them."""
