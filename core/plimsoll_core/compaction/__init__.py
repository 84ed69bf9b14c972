"""Log compaction: which log is cleaned how far, and which records and batches stay.

Called by the broker's cleaner.  Source: docs/protocol.md §10, after Kafka's LogCleaner.
"""
