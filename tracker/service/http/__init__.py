"""What a process tells over HTTP."""
