"""Recommendation: the next item of a history, and candidates judged by it."""
