"""Restarts brokers, each with a grant of the controller."""
