"""Here so that `document_cases` can be imported by the tests of every room."""
