"""Where a network looks in a picture: heat, figures, tables."""
