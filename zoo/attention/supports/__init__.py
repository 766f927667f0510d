"""Supports: which queries may attend to which keys, and how these pairs are laid out in memory.

Goes: Attention(restrict=...).
"""
