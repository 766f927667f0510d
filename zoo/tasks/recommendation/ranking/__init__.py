"""Ranking of held-out items: protocols, ranks and metrics."""
