"""Reading, downloading, splitting and loading data, for every domain."""
