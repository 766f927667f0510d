"""Pictures that texts are about: generated scenes, and weights of cells as maps of a picture."""
