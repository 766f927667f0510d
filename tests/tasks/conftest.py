"""Here so that `run_cases` can be imported by the tests of every domain."""
