"""Pipelines move between groups, and the directory records where they live."""
