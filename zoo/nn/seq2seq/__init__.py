"""Encoder-decoder networks: decoders with attention, and the two halves of a Transformer."""
