"""Rankings: protocols, ranks, metrics."""
