"""Restarts of brokers, one granted at a time."""
