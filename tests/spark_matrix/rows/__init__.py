"""All rows: importing this registers them."""

from tests.spark_matrix.rows import (
    checkpoints,
    drivers,
    engine,
    evaluation,
    hosts,
    moods,
    several,
    tasks,
)

__all__ = [
    "checkpoints", "drivers", "engine", "evaluation", "hosts", "moods", "several", "tasks",
]  # fmt: skip
