"""The metadata log: one interface, one implementation over files, one over the Kubernetes API."""
