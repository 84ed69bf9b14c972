"""Requests that are nearly right: every served API in every version, then bytes go wrong.

A generator per seed.  `request` is a well-formed one with values of a stranger's choice; `frame`
is what is sent: as it is, cut, stretched, with bits turned, lengths that lie, or nothing but noise.
"""

from __future__ import annotations

import dataclasses
import random
import struct
from collections import deque
from functools import cache
from typing import Any
from uuid import UUID

import msgspec
from kio.index import load_request_schema

from plimsoll_wire.api_versions import SUPPORTED, ApiKey
from plimsoll_wire.batches import BatchHeader, seal
from plimsoll_wire.compression import ZSTD, packed
from plimsoll_wire.control import ControlKey
from plimsoll_wire.encoding import FIXED, shape
from plimsoll_wire.headers import request_frame
from plimsoll_wire.messages import encode_request

MANY_RECORDS = 200_000
"""In one batch that is small until it is opened."""
KEPT = 24
"""Well-formed requests of each API and version that are spoilt over and over; now and then a new
one takes the place of the oldest."""
NAMES = ("fuzz", "", "a" * 249, "b" * 32_760, "..", "ж" * 300, "__cluster_metadata", "x\0y")
WIDTHS = {"b": 8, "h": 16, "i": 32, "q": 64, "B": 8, "H": 16, "I": 32, "Q": 64}
REQUESTS = [
    (key, version)
    for key, versions in sorted(SUPPORTED.items())
    for version in range(versions.first, versions.last + 1)
]
LIES = (
    *(
        struct.pack(layout, value)
        for layout, values in (
            (">b", (-1, 127, -128)),
            (">h", (-1, -2, 2**15 - 1, -(2**15))),
            (">i", (-1, -2, 0, 2**31 - 1, -(2**31), 100 * 2**20)),
            (">q", (-1, 2**63 - 1, -(2**63), 2**40)),
        )
        for value in values
    ),
    b"\xff\xff\xff\xff\x0f",
    b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
    b"\x80\x80\x00",
)


class Frames:
    """`topic_id`: of a topic that is there, for the versions that name it so."""

    def __init__(self, seed: int, topic_id: UUID) -> None:
        self._dice = random.Random(seed)
        self._topic_id = topic_id
        self._number = 0
        self._made: dict[tuple[ApiKey, int], deque[bytes]] = {
            request: deque(maxlen=KEPT) for request in REQUESTS
        }

    # --- what is sent ---------------------------------------------------------------------------

    def frame(self) -> bytes:
        """One frame for a port that speaks Kafka's protocol."""
        dice = self._dice
        self._number += 1
        if dice.random() < 0.03:
            return self._noise()
        key, version = REQUESTS[self._number % len(REQUESTS)]
        made = self._made[key, version]
        if len(made) < KEPT or dice.random() < 0.02:
            made.append(self.request(key, version))
        return self._spoilt(dice.choice(made))

    def control_frame(self) -> bytes:
        """One frame for the controllers' port."""
        dice = self._dice
        if dice.random() < 0.05:
            return self._noise()
        key = dice.choice((ControlKey.COMMAND, ControlKey.FETCH_METADATA, 3))
        body = msgspec.msgpack.encode(self._message())
        head = struct.pack(">hhih", key, 0, dice.getrandbits(31), 4) + b"fuzz"
        return self._spoilt(struct.pack(">i", len(head) + len(body)) + head + body)

    def _spoilt(self, frame: bytes) -> bytes:
        dice = self._dice
        kind = dice.random()
        if kind < 0.15:
            return frame
        data = bytearray(frame)
        if kind < 0.4:
            for _ in range(dice.choice((1, 1, 2, 8))):
                data[dice.randrange(4, len(data))] ^= 1 << dice.randrange(8)
        elif kind < 0.6:
            at, lie = dice.randrange(4, len(data)), dice.choice(LIES)
            data[at : at + len(lie)] = lie
        elif kind < 0.75:
            del data[dice.randrange(4, len(data)) :]
        elif kind < 0.85:
            at = dice.randrange(4, len(data) + 1)
            data[at:at] = dice.randbytes(dice.randrange(1, 40))
        elif kind < 0.95:
            at = dice.randrange(4, len(data))
            del data[at : at + dice.randrange(1, 20)]
        else:
            data[:4] = dice.choice(LIES)[:4].ljust(4, b"\0")
            return bytes(data)
        if dice.random() < 0.95:
            data[:4] = struct.pack(">i", len(data) - 4)
        return bytes(data)

    def _noise(self) -> bytes:
        dice = self._dice
        body = dice.randbytes(dice.choice((0, 1, 7, 8, 9, 100, 20_000)))
        return struct.pack(">i", len(body)) + body

    # --- well-formed ----------------------------------------------------------------------------

    def request(self, key: ApiKey, version: int) -> bytes:
        values = self._entity(load_request_schema(key, version))
        body = encode_request(key, version, values)
        client_id = self._dice.choice(("fuzz", "", "c" * 300))
        return request_frame(key, version, self._dice.getrandbits(31), client_id, body)

    def _entity(self, entity: type) -> dict[str, Any]:
        return {
            field.name: self._value(field)
            for field in dataclasses.fields(entity)
            if "tag" not in field.metadata or self._dice.random() < 0.5
        }

    def _value(self, field: dataclasses.Field[Any]) -> Any:
        inner, nullable, is_array = shape(field.type)
        if nullable and self._dice.random() < 0.2:
            return None
        if is_array:
            kind = shape(inner)[0]
            return [self._item(kind, field) for _ in range(self._dice.choice((0, 1, 1, 2, 5)))]
        return self._item(inner, field)

    def _item(self, kind: Any, field: dataclasses.Field[Any]) -> Any:
        dice = self._dice
        if dataclasses.is_dataclass(kind):
            return self._entity(kind)
        name = field.metadata["kafka_type"]
        if name == "string":
            return dice.choice(NAMES) if dice.random() < 0.4 else NAMES[0]
        if name == "uuid":
            return self._topic_id if dice.random() < 0.7 else UUID(int=dice.getrandbits(128))
        if name in ("bytes", "records"):
            return self._records() if dice.random() < 0.7 else dice.randbytes(dice.randrange(90))
        if name == "bool":
            return dice.random() < 0.5
        if name == "float64":
            return dice.random()
        return self._number_for(field.name, WIDTHS[FIXED[name][1]])

    def _number_for(self, name: str, bits: int) -> int:
        dice = self._dice
        most = 2 ** (bits - 1) - 1
        if name in ("partition", "index", "partition_index", "acks", "replica_id"):
            return dice.choice((0, 0, 0, -1, 1, most))
        if "type" in name:
            return dice.choice((2, 2, 4, 0, -1, 127))
        if "wait" in name or "timeout" in name:
            return dice.choice((0, 1, 20, -1))
        return dice.choice((0, 1, -1, 2, most, -most - 1, dice.randint(-most, most)))

    def _records(self) -> bytes:
        dice = self._dice
        if dice.random() < 0.05:
            return _opens_to_many()
        count = dice.choice((1, 1, 2, 2**31 - 1, 0, -1))
        numbers = [dice.choice((-1, 0, 1, 2**31 - 1)) for _ in range(3)]
        header = BatchHeader(
            dice.choice((0, 1, 2**62)), 0, -1, 2, 0, dice.choice((0, 1, 2, 3, 4, 7, 32)),
            dice.choice((count - 1, 0)) if abs(count) < 2**30 else 0,
            dice.choice((0, -1, 2**62)), 1_000, numbers[0], numbers[1] % 2**15, numbers[2], count,
        )  # fmt: skip
        sealed = bytearray(seal(header, dice.randbytes(dice.randrange(60))))
        if dice.random() < 0.3:
            sealed[dice.randrange(len(sealed))] ^= 1 << dice.randrange(8)
        return bytes(sealed)

    # --- the private messages -------------------------------------------------------------------

    def _message(self) -> Any:
        dice = self._dice
        request = {
            "type": dice.choice(
                ("Heartbeat", "RegisterBroker", "AlterPartition", "FetchMetadata", "", "Activated")
            ),
            "broker_id": dice.choice((0, -1, 2**31, "0", None)),
            "broker_epoch": dice.choice((0, 2**63 - 1, 2**64 - 1, 1.5)),
            "position": self._tree(3),
            "changes": self._tree(4),
        }
        return {
            "cluster_id": str(UUID(int=dice.getrandbits(128))),
            "controller_epoch": dice.choice((0, -1, 2**64 - 1, "x")),
            "request": request if dice.random() < 0.8 else self._tree(5),
        }

    def _tree(self, depth: int) -> Any:
        dice = self._dice
        if not depth or dice.random() < 0.4:
            return dice.choice((None, True, 0, -1, 2**64 - 1, "a", "b" * 300, b"\xff", 0.5))
        if dice.random() < 0.5:
            return [self._tree(depth - 1) for _ in range(dice.randrange(4))]
        return {dice.choice(("a", "type", "b")): self._tree(depth - 1) for _ in range(2)}


@cache
def _opens_to_many() -> bytes:
    """A few hundred bytes that take a processor for a while: no two neighbours are of one size."""
    records = (b"\x0c" + bytes(6) + b"\x0e" + bytes(7)) * (MANY_RECORDS // 2)
    header = BatchHeader(
        0, 0, -1, 2, 0, ZSTD, MANY_RECORDS - 1, 1_000, 1_000, -1, -1, -1, MANY_RECORDS
    )
    return seal(header, packed(ZSTD, records))
