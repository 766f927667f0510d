"""Both directions of attention between a question and what it is about, as maps, tables and pictures."""
