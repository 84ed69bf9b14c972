"""Replicas that move: reassignments and rebalances."""
