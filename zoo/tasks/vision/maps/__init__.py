"""Heat maps of pictures, figures and tables."""
