"""Networks of question answering."""
