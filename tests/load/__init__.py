"""Layers of tests beside busy processes, several times in a row: no test may depend on how fast the machine is."""
