"""The protocol as a transition system, and invariants by which it is safe for any number of anything."""
