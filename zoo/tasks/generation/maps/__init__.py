"""What the maps of models that write have in common."""
