"""A tracker's state in words and as JSON: what the command line and the dashboard both show."""
