"""The metadata log: one interface, one shell over files, one over the Kubernetes API."""
