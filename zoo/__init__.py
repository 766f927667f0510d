"""The attention zoo."""
