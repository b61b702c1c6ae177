"""The real parts: jars that Maven fetches, and launchers of what they hold, on loopback."""
