"""The command line, and what it does with a trained model."""
