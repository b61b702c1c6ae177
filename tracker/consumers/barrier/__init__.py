"""Rows of tracked queries, written into a sink in the order of time, each once, when they are complete."""
