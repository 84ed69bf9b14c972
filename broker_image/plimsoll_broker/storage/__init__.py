"""One broker's data on disk, in Kafka's own formats. This package knows nothing of the network or
of replicas' roles."""
