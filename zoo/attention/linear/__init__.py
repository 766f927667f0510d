"""Kernel and low-rank attention: mechanisms that never compute a weight for each pair of query and key.

Goes: in place of Attention.
"""
