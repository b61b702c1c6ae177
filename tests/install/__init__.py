"""Lowmark as it is installed: its wheel, in fresh environments in other directories, where no repository is on the
path. `python -m tests.install` is the matrix of versions, `python -m tests.install.newcomer` the first minutes."""
