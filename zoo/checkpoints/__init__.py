"""A checkpoint: one safe file, what may be in it, older formats, fine-tuning from it."""
