"""A tracker process on the network: a thin gRPC shell around `tracker.core.process.Process`."""
