"""Builds the Kubernetes objects that the operator makes: pure functions, one kind per file."""
