"""A thin client of the Kubernetes API: only what the operator uses, with a timeout on every
call."""
