"""Kafka's client quotas: the committed limits, and the clients' use of them. Pure."""
