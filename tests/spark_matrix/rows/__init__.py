"""All rows: importing this registers them."""

from tests.spark_matrix.rows import (
    checkpoints,
    drivers,
    eager,
    engine,
    evaluation,
    hosts,
    moods,
    several,
    tasks,
    ways,
)

__all__ = [
    "checkpoints", "drivers", "eager", "engine", "evaluation", "hosts", "moods", "several", "tasks", "ways",
]  # fmt: skip
