"""Attention maps of recommenders: the contribution of past items to recommendations, as maps, tables and pictures."""
