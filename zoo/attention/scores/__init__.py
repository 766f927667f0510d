"""Scores: what a query thinks of a key.

Goes: Attend(score=...).
"""
