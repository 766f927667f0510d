"""Here so that `captioning_cases` can be imported by the tests of every room."""
