"""Requests that make little sense: those of the rights' matrix, each with one value changed.

A value is replaced by others of its kind that are at an edge: numbers around 0, the least and the
greatest one, an empty, a missing and an unknown name, a name that nothing may have, an empty list,
none, one that names everything twice.  What cannot be encoded is left out.  Beside those, every
request in every version, and batches whose headers say what they do not hold.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any
from uuid import UUID

from crc32c import crc32c
from tests.conformance.rights.requests import REQUESTS, Ids, Request
from tests.plimsoll_broker.trio import a_batch

from plimsoll_wire.api_versions import SUPPORTED, ApiKey
from plimsoll_wire.batches import HEADER_SIZE
from plimsoll_wire.messages import encode_request

_NUMBERS = (-2, -1, 0, 1, 2, 5, 9, 100, 2**15 - 1, 2**31 - 1, -(2**31))
_FRACTIONS = (-1.0, 0.0, 0.5, math.nan, math.inf, 1e300)
_NAMES = ("", None, "no.such", "a b", "x" * 300, ".", "__consumer_offsets", "é")
_IDS = (UUID(int=0), UUID(int=99), None)
_WAITS = {"max_wait": (-1, 0), "timeout": (-1, 0)}
"""Nobody waits for the greatest."""
_CHANGING = frozenset(
    {ApiKey.CREATE_TOPICS, ApiKey.CREATE_PARTITIONS, ApiKey.DELETE_TOPICS, ApiKey.DELETE_GROUPS}
    | {ApiKey.OFFSET_DELETE}
)
TOPIC = "odd"
"""Of batches."""
_CRC_AT, _SEALED_FROM = 17, 21


@dataclass(frozen=True, slots=True)
class Odd:
    """`what`: the request; `where`: the value that is changed; `to`: into what."""

    what: str
    where: str
    to: str
    key: ApiKey
    version: int
    body: bytes
    changes: bool = False

    @property
    def name(self) -> str:
        return f"{self.what}|{self.where}|{self.to}"


def every_request(ids: Callable[[], Ids]) -> Iterator[Odd]:
    """Without repetitions.  `ids`: of the topics as they are at the moment."""
    seen: set[tuple[ApiKey, int, bytes]] = set()
    for request in REQUESTS:
        for odd in chain(_versions(request, ids()), _odd(request, ids)):
            asked = (odd.key, odd.version, odd.body)
            if asked not in seen:
                seen.add(asked)
                yield odd
    yield from _batches()


def _versions(request: Request, ids: Ids) -> Iterator[Odd]:
    served = SUPPORTED[request.key]
    for version in range(served.first, served.last + 1):
        if (body := _encoded(request, version, request.values(ids))) is not None:
            yield Odd(request.name, "", f"v{version}", request.key, version, body)


def _odd(request: Request, ids: Callable[[], Ids]) -> Iterator[Odd]:
    changes = request.changes or request.key in _CHANGING
    many = len(list(_mutations(request.values(ids()), "")))
    for number in range(many):
        where, to, values = next(islice(_mutations(request.values(ids()), ""), number, None))
        if (body := _encoded(request, request.version, values)) is not None:
            shown = f"{to!r:.40}"
            yield Odd(request.name, where, shown, request.key, request.version, body, changes)


def _encoded(request: Request, version: int, values: Mapping[str, Any]) -> bytes | None:
    try:
        return encode_request(request.key, version, values)
    except (AssertionError, AttributeError, TypeError, ValueError, KeyError, struct.error):
        return None


def _mutations(value: Any, name: str) -> Iterator[tuple[str, Any, Any]]:
    """Where, into what, and the whole with it."""
    match value:
        case dict():
            for key, one in value.items():
                for where, to, made in _mutations(one, key):
                    yield f".{key}{where}", to, {**value, key: made}
        case list() | tuple():
            for whole in ([], None, [*value, *value]):
                yield "", "twice" if whole else whole, whole
            if value:
                for where, to, made in _mutations(value[0], name):
                    yield f"[0]{where}", to, [made, *value[1:]]
        case _:
            for other in _others(value, name):
                yield "", other, other


def _others(value: Any, name: str) -> tuple[Any, ...]:
    match value:
        case bool():
            return (not value,)
        case int():
            return _WAITS.get(name, _NUMBERS)
        case float():
            return _FRACTIONS
        case str():
            return _NAMES
        case UUID():
            return _IDS
        case bytes() | bytearray():
            return (b"", None, bytes(value[:-1]), bytes(value) * 2, b"\0\1\2")
        case _:
            return ([], "", "x")


# --- batches --------------------------------------------------------------------------------------


def _said(offset: int, layout: str, *values: int) -> bytes:
    """A batch of three records whose header says something else there."""
    batch = bytearray(a_batch(3))
    struct.pack_into(f">{layout}", batch, offset, *values)
    struct.pack_into(">I", batch, _CRC_AT, crc32c(bytes(batch[_SEALED_FROM:])))
    return bytes(batch)


_SEQUENCES = (
    *((5, -1, -1), (5, 0, -1), (5, 0, 0), (6, 0, 7), (-2, -1, -1), (-1, 3, -1), (-1, -1, 3)),
    *((7, 0, -2), (8, -2, 0), (5, 0, 3), (5, 0, 0), (5, 0, 9), (5, 1, 5), (5, 1, 0), (5, 0, 6)),
    *((9, 0, 2**31 - 2), (9, 0, 1)),
)
"""Id, epoch and first sequence number of a producer, one after another."""


def _batch_cases() -> dict[str, bytes]:
    whole = a_batch(3)
    cases = {f"first {size}": whole[:size] for size in (3, 11, 12, 17, 60, HEADER_SIZE)}
    cases |= {"torn": whole[:-1], "twice": whole * 2, "crc": whole[:17] + b"\0\0\0\1" + whole[21:]}
    cases |= {f"magic {one}": _said(16, "b", one) for one in (-1, 0, 1, 3)}
    length = len(whole) - 12
    cases |= {f"length {one}": _said(8, "i", one) for one in (-1, 0, 13, length - 1, length + 1)}
    cases |= {f"base offset {one}": _said(0, "q", one) for one in (-1, 5)}
    cases |= {f"leader epoch {one}": _said(12, "i", one) for one in (-5, 7)}
    cases |= {f"attributes {1 << one}": _said(21, "h", 1 << one) for one in range(15)}
    cases |= {f"last offset delta {one}": _said(23, "i", one) for one in (-1, 0, 5)}
    cases |= {f"count {one}": _said(57, "i", one) for one in (-1, 0, 2, 4)}
    for number, one in enumerate(_SEQUENCES):
        cases[f"producer {number} {one}"] = _said(43, "qhi", *one)
    return cases | {"a byte behind": whole + b"\0", "bytes behind": whole + bytes(20)}


def _batches() -> Iterator[Odd]:
    for name, records in _batch_cases().items():
        part = {"index": 0, "records": records}
        values = {
            "transactional_id": None,
            "acks": -1,
            "timeout": 5_000,
            "topic_data": [{"name": TOPIC, "partition_data": [part]}],
        }
        body = encode_request(ApiKey.PRODUCE, 10, values)
        yield Odd("batches", name.partition(" ")[0], name, ApiKey.PRODUCE, 10, body)
