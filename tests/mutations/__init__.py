"""Single faults put into the production core, as patches; the simulator has to find each of them."""
