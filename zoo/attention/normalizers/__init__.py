"""Normalizers: functions that turn the scores of a query into weights.

Goes: Attention(normalizer=...).
"""
