"""Generated questions, whose answers follow from what is gold."""
