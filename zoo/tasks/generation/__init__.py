"""What domains share whose models write texts: the target side of a batch, its language, and the net's interface."""
