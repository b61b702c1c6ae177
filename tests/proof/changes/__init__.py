"""Rule 12, in a system of its own: a pipeline whose edges change while it runs."""
