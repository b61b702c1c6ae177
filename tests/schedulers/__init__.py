"""Airflow, Dagster and dbt with Lowmark: `python -m tests.schedulers` is `make schedulers`; test_*.py need none of them."""
