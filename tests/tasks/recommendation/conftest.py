"""Exists so that the tests of every folder can import `recommendation_cases`."""
