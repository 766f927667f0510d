"""Maps of documents: weights of words and sentences as arrays, tables and pages."""
