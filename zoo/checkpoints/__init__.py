"""Checkpoints: writing and safely reading them, migrating older formats, and fine-tuning from them."""
