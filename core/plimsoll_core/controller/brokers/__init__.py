"""The controller's decisions about brokers: registration, heartbeats, fencing, restarts,
removal."""
