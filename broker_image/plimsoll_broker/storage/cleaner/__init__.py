"""Cleaning a compacted log on disk: reading, writing, and what a crash leaves of it."""
