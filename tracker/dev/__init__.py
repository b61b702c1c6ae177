"""`lowmark dev`: a tracker, its dashboard and a sample pipeline that moves, in one process of a developer's machine.

`tracker.dev.server` puts the parts together, `tracker.dev.sample` is the pipeline, and `tracker.dev.starting` writes
the files of `lowmark init`.
"""
