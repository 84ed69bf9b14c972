"""A thin client of the Kubernetes API: only what is used here, and a timeout on everything."""
