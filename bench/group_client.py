"""Raw requests of members and committers, for benchmarks: no client's timers, no client's threads.

Used by `bench.groups` against Plimsoll and Apache Kafka alike.
"""

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import Callable
from itertools import count
from typing import Any

from plimsoll_wire.api_versions import ApiKey, is_flexible
from plimsoll_wire.headers import request_frame
from plimsoll_wire.messages import decode_response, encode_request

SUBSCRIPTION = b"\0\1\0\0\0\1\0\6orders\xff\xff\xff\xff\0\0\0\0"
COMMIT_VERSION, FETCH_VERSION, LIST_VERSION = 8, 12, 7
LATEST = -1
UNKNOWN_MEMBER_ID = 25
FETCH_BYTES, FETCH_PARTITION_BYTES = 50 * 2**20, 2**20
INFINITE = 2**62
_NUMBERS = count(1)
_NUMBER = struct.Struct(">i")
_CODE = struct.Struct(">h")
_CODE_AT = -5
"""The place of the code in an answer that ends with one partition's code: three empty tag buffers
follow."""


def frame(key: ApiKey, version: int, values: dict[str, Any]) -> bytes:
    body = encode_request(key, version, values)
    return request_frame(key, version, next(_NUMBERS), "bench", body)


class Connection:
    """One request at a time."""

    async def connect(self, host: str, port: int) -> None:
        self._reader, self._writer = await asyncio.open_connection(host, port, limit=2**26)

    async def ask(self, key: ApiKey, version: int, values: dict[str, Any]) -> Any:
        self._writer.write(frame(key, version, values))
        size = _NUMBER.unpack(await self._reader.readexactly(4))[0]
        reply = await self._reader.readexactly(size)
        return decode_response(key, version, reply[5:] if is_flexible(key, version) else reply[4:])

    def close(self) -> None:
        self._writer.close()


class Member(Connection):
    """A member of a classic group."""

    def __init__(self, group: str) -> None:
        self.group = group
        self.member_id = ""
        self.joined: Any = None
        self.asked_s = 0.0

    async def join(self) -> None:
        """Join until the coordinator gives it a generation."""
        self.asked_s = time.monotonic()
        while True:
            values = {
                "group_id": self.group,
                "session_timeout": 60_000,
                "rebalance_timeout": 60_000,
                "member_id": self.member_id,
                "group_instance_id": None,
                "protocol_type": "consumer",
                "protocols": [{"name": "range", "metadata": SUBSCRIPTION}],
                "reason": None,
            }
            self.joined = await self.ask(ApiKey.JOIN_GROUP, 9, values)
            code = int(self.joined.error_code)
            self.member_id = "" if code == UNKNOWN_MEMBER_ID else str(self.joined.member_id)
            if code == 0:
                return

    def _identity(self) -> dict[str, Any]:
        return {
            "group_id": self.group,
            "generation_id": int(self.joined.generation_id),
            "member_id": self.member_id,
            "group_instance_id": None,
        }

    async def sync(self) -> int:
        parts = [
            {"member_id": str(one.member_id), "assignment": SUBSCRIPTION}
            for one in self.joined.members
        ]
        values = {**self._identity(), "protocol_type": "consumer", "protocol_name": "range"}
        values["assignments"] = parts
        return int((await self.ask(ApiKey.SYNC_GROUP, 5, values)).error_code)

    async def rebalance(self) -> float:
        """Join and sync until it has its part; when it had it."""
        while True:
            await self.join()
            if await self.sync() == 0:
                return time.monotonic()

    async def heartbeat(self) -> int:
        return int((await self.ask(ApiKey.HEARTBEAT, 4, self._identity())).error_code)

    async def commit(self, topic: str, partitions: int, offset: int) -> list[int]:
        """The codes; without members it may commit what it likes."""
        values = commit_values(self.group, topic, range(partitions), offset)
        if self.joined is not None:
            values |= self._identity()
            values["generation_id_or_member_epoch"] = values.pop("generation_id")
        reply = await self.ask(ApiKey.OFFSET_COMMIT, COMMIT_VERSION, values)
        return [int(one.error_code) for topic in reply.topics for one in topic.partitions]

    async def leave(self) -> None:
        one = {"member_id": self.member_id, "group_instance_id": None, "reason": None}
        await self.ask(ApiKey.LEAVE_GROUP, 5, {"group_id": self.group, "members": [one]})
        self.close()


def commit_values(group: str, topic: str, partitions: range, offset: int) -> dict[str, Any]:
    """Return an OffsetCommit that is of no member."""
    each = [
        {
            "partition_index": index,
            "committed_offset": offset,
            "committed_leader_epoch": -1,
            "committed_metadata": "",
        }
        for index in partitions
    ]
    return {
        "group_id": group,
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "group_instance_id": None,
        "topics": [{"name": topic, "partitions": each}],
    }


class Committer(asyncio.Protocol):
    """Sends OffsetCommits of one partition each, made before, and takes down how long each took.

    `next_frame`: None: no more for now.
    """

    def __init__(self, next_frame: Callable[[], bytes | None]) -> None:
        self._next = next_frame
        self._sent: list[float] = []
        self._answered = 0
        self._rest = bytearray()
        self.took: list[float] = []
        # Set while nothing is under way.
        self.idle = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def send(self) -> None:
        made = self._next()
        if made is not None:
            self.send_one(made)

    def send_one(self, made: bytes) -> None:
        self.idle.clear()
        self._sent.append(time.perf_counter())
        self._transport.write(made)

    def data_received(self, data: bytes) -> None:
        self._rest += data
        at, now_s = 0, time.perf_counter()
        while at + 4 <= len(self._rest):
            end = at + 4 + _NUMBER.unpack_from(self._rest, at)[0]
            if end > len(self._rest):
                break
            code = _CODE.unpack_from(self._rest, end + _CODE_AT)[0]
            assert code == 0, f"a commit was refused: {code}"
            # Answers come in the order of the requests.
            self.took.append(now_s - self._sent[self._answered])
            self._answered += 1
            self.send()
            at = end
        del self._rest[:at]
        if self._answered == len(self._sent):
            self.idle.set()

    def close(self) -> None:
        self._transport.close()
