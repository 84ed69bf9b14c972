"""Encodes the records of a drive: producer, sequence and a content hash are the first bytes of a
record's value.

    0      2          8                16
    +------+----------+----------------+---------
    | prod | sequence | hash, 8 bytes  | payload
    +------+----------+----------------+---------

The hash covers the run's salt, producer, sequence and payload; so a record proves by itself that it
is undamaged and that this run wrote it. Called by `producer` and `partition_reader`. Pure.
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
    """Return the salt of the run with this id. It makes the hashes in a run's records differ from
    those of any other run."""
    return hashlib.sha256(run.encode()).digest()[:16]


def key_of(producer: int, sequence: int, keys: int) -> str:
    """Return the record key for a sequence: one of `k0` to `k{keys - 1}`. Adjacent sequences get
    different keys."""
    return f"k{key_number(producer, sequence, keys)}"


def key_number(producer: int, sequence: int, keys: int) -> int:
    """Return the number in the record key for a sequence."""
    return ((sequence * _KEY_SPREAD + producer) >> 7) % keys


class Encoder:
    """Makes the record values of one producer of a run, each of `record_bytes` bytes."""

    def __init__(self, *, run: str, producer: int, record_bytes: int) -> None:
        self._salt = salt_of(run)
        self._producer = producer.to_bytes(PRODUCER_BYTES, "big")
        self._payload_bytes = record_bytes - HEADER_BYTES
        self._pool = hashlib.shake_128(self._salt + self._producer).digest(
            _POOL_BYTES + self._payload_bytes
        )

    def value(self, sequence: int) -> bytes:
        """Return the value of the record `sequence`: header and payload."""
        prefix = self._producer + sequence.to_bytes(SEQUENCE_BYTES, "big")
        start = sequence * 8191 % _POOL_BYTES
        payload = self._pool[start : start + self._payload_bytes]
        return prefix + content_hash(self._salt, prefix, payload) + payload


def content_hash(salt: bytes, prefix: bytes, payload: bytes) -> bytes:
    """Return the eight bytes of hash in a value's header. `prefix`: producer and sequence,
    encoded."""
    return hashlib.sha256(salt + prefix + payload).digest()[:HASH_BYTES]


def sequence_of(value: bytes) -> int:
    """Return the sequence in the header of a value."""
    return int.from_bytes(value[PRODUCER_BYTES:PREFIX_BYTES], "big")
