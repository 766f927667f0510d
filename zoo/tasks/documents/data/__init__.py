"""Data sets of documents: published, generated and the user's own."""
