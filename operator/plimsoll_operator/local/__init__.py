"""Local mode: the same operator and brokers as in Kubernetes, as processes on loopback."""
