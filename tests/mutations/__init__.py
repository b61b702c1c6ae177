"""Single faults put into the production core; the simulator has to find each of them."""
