"""Kubernetes objects that the operator makes: pure builders, one kind per file."""
