"""Handlers of Kafka requests: one module per API, or per family of APIs."""
