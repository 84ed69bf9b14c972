"""Encodes and decodes what is sent and stored, without I/O: frames, Kafka messages, record batches,
and the private messages between brokers and controller.
"""
