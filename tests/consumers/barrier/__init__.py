"""The barrier: what it takes, what it releases, and what each of its sinks promises."""
