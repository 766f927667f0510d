"""Supports: who may attend to whom, and how the pairs are laid out in memory.

Goes: Attend(restrict=...).
"""
