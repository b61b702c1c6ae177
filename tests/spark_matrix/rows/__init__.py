"""All rows: importing this registers them."""

from tests.spark_matrix.rows import checkpoints, drivers, evaluation, moods, several, tasks

__all__ = ["checkpoints", "drivers", "evaluation", "moods", "several", "tasks"]
