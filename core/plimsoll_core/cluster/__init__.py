"""Committed state: the records, the image that they make, and its invariants."""
