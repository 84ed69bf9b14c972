"""Local mode: runs the operator and the brokers of Kubernetes as processes on loopback."""
