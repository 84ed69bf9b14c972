"""Finds the partition of an internal topic that holds a group, by Kafka's rule.

Called by FindCoordinator, and by code that must know whether a group belongs to this broker.
Source: Java's `String.hashCode`, over UTF-16 code units, and Kafka's `Utils.abs`; docs/protocol.md
§5.8.
"""

from __future__ import annotations

import struct

_INT_MIN = -(2**31)


def java_hash(text: str) -> int:
    """Return what Java's `String.hashCode` returns for the text: a signed 32-bit integer."""
    units = text.encode("utf-16-be", errors="surrogatepass")
    value = 0
    for (unit,) in struct.iter_unpack(">H", units):
        value = (31 * value + unit) & 0xFFFFFFFF
    return value - 2**32 if value >= 2**31 else value


def partition_of(key: str, partitions: int) -> int:
    """Return the index of the internal topic's partition that holds `key`, a group id.
    `partitions`: the topic's number of partitions, which never changes."""
    value = java_hash(key)
    return (0 if value == _INT_MIN else abs(value)) % partitions
