"""The words and sentences that weighed in a classification: weights, pages and tables."""
