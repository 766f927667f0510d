"""Positions: where queries and keys stand.

Goes: MultiHead(position=...); those of `embeddings` are added to inputs.
"""
