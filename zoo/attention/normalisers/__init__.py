"""Normalisers: how the scores of a query become its weights.

Goes: Attend(normalise=...).
"""
