"""Histories of users: published, generated, and read from the user's own files."""
