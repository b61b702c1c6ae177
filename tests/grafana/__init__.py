"""The dashboards for Grafana, each query of them evaluated over a recorded run of a real tracker: `make grafana`."""
