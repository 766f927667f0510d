"""Maps of translations."""
