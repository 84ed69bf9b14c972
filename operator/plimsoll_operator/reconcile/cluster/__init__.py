"""Reconciles a LogCluster: its members, volumes, Kubernetes objects, releases, and metadata log."""
