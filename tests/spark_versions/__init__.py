"""The quick rows of the Spark matrix on every version of PySpark that is supported, each in an
environment of its own: `python -m tests.spark_versions`, or `make spark-versions`."""
