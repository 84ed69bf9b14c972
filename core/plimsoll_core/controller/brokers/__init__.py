"""Brokers: registration, heartbeats, fencing, restarts, decommissioning."""
