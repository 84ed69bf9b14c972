"""Kafka's client quotas: what is committed of them, and how much of each was used.  Pure."""
