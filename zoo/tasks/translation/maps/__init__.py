"""The words that translations were made of: heat maps, tables, and how much of a gradient arrives."""
