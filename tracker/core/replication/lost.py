"""A home log that is shorter than what others hold of it."""


class LogLost(Exception):
    """This shard's home log is shorter than what another shard has confirmed of it."""
