"""Mixers: layers that mix positions without attention, for comparison.

Goes: in place of MultiheadAttention.
"""
