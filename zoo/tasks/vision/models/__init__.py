"""Networks that classify pictures."""
