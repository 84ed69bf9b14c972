"""The encoding of a driven record: producer, sequence and content hash lead its value.

    0      2          8                16
    +------+----------+----------------+---------
    | prod | sequence | hash, 8 bytes  | payload
    +------+----------+----------------+---------

The hash covers the run's salt, producer, sequence and payload; so a record proves by itself that it
is whole and that this run wrote it. Called by `producer` and `partition_reader`. Pure.
"""

from __future__ import annotations

import hashlib

PRODUCER_BYTES = 2
SEQUENCE_BYTES = 6
HASH_BYTES = 8
PREFIX_BYTES = PRODUCER_BYTES + SEQUENCE_BYTES
HEADER_BYTES = PREFIX_BYTES + HASH_BYTES

_POOL_BYTES = 1 << 16
_KEY_SPREAD = 0x9E3779B1


def salt_of(run: str) -> bytes:
    """Return a run's salt, which makes its records differ from those of other runs."""
    return hashlib.sha256(run.encode()).digest()[:16]


def key_of(producer: int, sequence: int, keys: int) -> str:
    """Return one of `keys` keys; neighbours in sequence get keys far apart."""
    return f"k{((sequence * _KEY_SPREAD + producer) >> 7) % keys}"


class Encoder:
    """Encodes the values of one producer."""

    def __init__(self, *, run: str, producer: int, record_bytes: int) -> None:
        self._salt = salt_of(run)
        self._producer = producer.to_bytes(PRODUCER_BYTES, "big")
        self._payload_bytes = record_bytes - HEADER_BYTES
        self._pool = hashlib.shake_128(self._salt + self._producer).digest(
            _POOL_BYTES + self._payload_bytes
        )

    def value(self, sequence: int) -> bytes:
        """Return the whole value of one record."""
        prefix = self._producer + sequence.to_bytes(SEQUENCE_BYTES, "big")
        start = sequence * 8191 % _POOL_BYTES
        payload = self._pool[start : start + self._payload_bytes]
        return prefix + content_hash(self._salt, prefix, payload) + payload


def content_hash(salt: bytes, prefix: bytes, payload: bytes) -> bytes:
    """Return the eight bytes that prove a record whole."""
    return hashlib.sha256(salt + prefix + payload).digest()[:HASH_BYTES]


def sequence_of(value: bytes) -> int:
    """Return the sequence in a value."""
    return int.from_bytes(value[PRODUCER_BYTES:PREFIX_BYTES], "big")
