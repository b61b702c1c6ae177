"""What pipelines and nodes ask of their home: all that may be refused is refused here (rules 1, 2, 9)."""
