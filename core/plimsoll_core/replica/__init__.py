"""One partition's copy on one broker: decides what it may append, commit, truncate and answer.

The broker calls it. It does no I/O and knows offsets and epochs, never payloads.
"""
