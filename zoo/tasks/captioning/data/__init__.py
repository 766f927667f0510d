"""Pictures with captions as they are read, and the batches that are made of them."""
