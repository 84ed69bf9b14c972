"""One partition's copy on one broker: what it may append, commit, truncate and answer.

The broker's shell steps it; it does no I/O and knows offsets and epochs, never payloads.
"""
