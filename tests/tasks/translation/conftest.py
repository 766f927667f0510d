"""Here so that `translation_cases` can be imported by the tests of every room."""
