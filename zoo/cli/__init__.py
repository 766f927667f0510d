"""The command line: its parser, and the commands that use a trained model."""
