"""Kernel and low-rank attention: no weights are formed.

Goes: in place of Attend.
"""
