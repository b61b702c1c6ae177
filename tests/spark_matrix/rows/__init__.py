"""All rows: importing this registers them."""

from tests.spark_matrix.rows import (
    checkpoints,
    connected,
    drivers,
    eager,
    engine,
    evaluation,
    hosts,
    moods,
    progress,
    several,
    starting,
    state,
    tasks,
    visible,
    ways,
)

__all__ = [
    "checkpoints", "connected", "drivers", "eager", "engine", "evaluation", "hosts", "moods", "progress", "several",
    "starting", "state", "tasks", "visible", "ways",
]  # fmt: skip
