"""The networks of recommenders."""
