"""Networks that classify packed batches of documents."""
