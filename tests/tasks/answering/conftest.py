"""Here so that `answering_cases` can be imported by the tests of every room."""
