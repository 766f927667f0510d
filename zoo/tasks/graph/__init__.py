"""Attention over the edges of a graph: node classification."""
