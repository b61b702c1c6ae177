"""The barrier under load, killed with all that it depends on: `make barrier`."""
