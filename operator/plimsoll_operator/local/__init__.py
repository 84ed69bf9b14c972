"""Local mode: the same controller and brokers as in Kubernetes, as processes on loopback."""
