"""Scores of texts against references. Each adds up over batches and processes."""
