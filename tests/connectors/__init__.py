"""Sources and sinks, each tried with the real thing: brokers, file systems, stores and table formats."""
