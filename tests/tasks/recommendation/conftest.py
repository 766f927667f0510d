"""Here so that `recommendation_cases` can be imported by the tests of every room."""
