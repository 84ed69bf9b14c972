"""Bytes and messages, without I/O: framing, Kafka messages, record batches, private messages."""
