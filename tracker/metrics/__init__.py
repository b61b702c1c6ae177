"""Metrics: their names, how their samples are gathered in families, and how they are served over HTTP.

Nothing here knows the process that is measured: it hands its numbers out.
"""
