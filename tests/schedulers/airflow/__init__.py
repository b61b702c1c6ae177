"""What `make schedulers` does with Airflow."""
