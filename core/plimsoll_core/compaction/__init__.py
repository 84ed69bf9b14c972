"""Log compaction: selects the log to clean, the range, and the records and batches that stay.

Called by the broker's cleaner. Source: docs/protocol.md §10, after Kafka's LogCleaner."""
