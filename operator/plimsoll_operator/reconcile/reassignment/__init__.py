"""Reassignments."""
