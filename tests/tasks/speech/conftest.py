"""Here so that `recogniser_cases` can be imported by the tests of every room."""
