"""What a local tracker does with acks, without clock, files or sockets: merge them, time flushes."""
