"""Experiments with a tracker that grows and shrinks: each is a module with `find()`, which returns lines to
draw, by name, and what is worth a table."""
