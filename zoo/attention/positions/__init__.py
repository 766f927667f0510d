"""Positions: encodings of the positions of queries and keys, and of inputs.

Goes: MultiheadAttention(position=...); those of `embeddings` are added to inputs.
"""
