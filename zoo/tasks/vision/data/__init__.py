"""Data sets of pictures: published, generated and the user's own."""
