"""Rebalances: planned, approved, moved."""
