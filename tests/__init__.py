"""All tests, and the programs of the checks."""
