"""Scores: functions that give one number for each pair of query and key.

Goes: Attention(score=...).
"""
