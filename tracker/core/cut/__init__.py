"""Vectors, the cut rule, the graph, and when min times were announced (rules 5, 6, 7)."""
