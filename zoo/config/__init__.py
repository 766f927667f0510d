"""Composes the overrides of a command into one resolved configuration, checks it, and builds objects from it."""
