"""All rows: importing this registers them."""

from tests.spark_matrix.rows import drivers, evaluation, moods, tasks

__all__ = ["drivers", "evaluation", "moods", "tasks"]
