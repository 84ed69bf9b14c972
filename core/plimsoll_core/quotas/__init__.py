"""Kafka's client quotas: the committed quotas, and the usage of each. Pure."""
