"""Rebalances: plans new placements, waits for their approval, and moves replicas."""
