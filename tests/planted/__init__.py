"""Faults planted into real tracker processes: the checker of histories finds each."""
