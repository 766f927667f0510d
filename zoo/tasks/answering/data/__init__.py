"""Data of question answering."""
