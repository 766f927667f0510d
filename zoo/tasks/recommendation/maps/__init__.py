"""Maps of recommendations: which past items weigh on them, in figures and tables."""
