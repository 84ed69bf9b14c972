"""One broker's data on disk, in Kafka's own formats.  Knows nothing of the network or of roles."""
