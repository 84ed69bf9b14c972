"""A tenant that measures: what others do is judged by its latencies and errors.

Ten times a second each: a record of 100 bytes with acks=all, a heartbeat and a commit of a group's
member, DescribeCluster of an administrator; and once a second a new login.  An answer that is an
error, that does not come within 30 s or a connection that the broker closes counts as an error:
nothing is tried again for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.integration.tenant_client import LOST, Login, Peer, Place, Refused

from plimsoll_wire.api_versions import ApiKey
from plimsoll_wire.batches import BatchHeader, seal
from plimsoll_wire.decoding import ErrorCode

TOPIC, GROUP = "victim.orders", "victim.readers"
OPERATIONS = ("produce", "group", "admin", "login")
PERIOD_S = {"produce": 0.1, "group": 0.1, "admin": 0.1, "login": 1.0}
AGAIN_S = 0.2
"""After an error, before it connects again."""
BEGINS_S = 60.0
NO_MEMBER = (
    ErrorCode.unknown_member_id,
    ErrorCode.illegal_generation,
    ErrorCode.rebalance_in_progress,
)
"""After these it joins anew."""
PROTOCOL = b"\0\1\0\0\0\1\0\x0dvictim.orders\xff\xff\xff\xff\0\0\0\0"


@dataclass(frozen=True, slots=True)
class Sample:
    """One operation: when it began (monotonic seconds), how long it took, what was wrong."""

    began_s: float
    took_ms: float
    error: str = ""


@dataclass(slots=True)
class Victim:
    """`logins`: of `victim` and of `admin`."""

    place: Place
    logins: dict[str, Login]
    samples: dict[str, list[Sample]] = field(
        default_factory=lambda: {name: [] for name in OPERATIONS}
    )
    _begun: dict[str, float] = field(default_factory=dict)

    @contextlib.asynccontextmanager
    async def measuring(self) -> Any:
        """For the length of the block; each operation has succeeded once when it begins."""
        sessions = {"produce": Producing, "group": Belonging, "admin": Asking, "login": LoggingIn}
        tasks = [asyncio.create_task(self._keep(name, sessions[name])) for name in OPERATIONS]
        try:
            await self._until(lambda: all(self._good(name) for name in OPERATIONS))
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def finished(self, before_s: float) -> None:
        """Until all operations have ended that began before that time; each ends within 30 s."""
        await self._until(
            lambda: all(began > before_s for began in self._begun.values()), poll_s=0.02
        )

    def between(self, name: str, begin_s: float, end_s: float) -> list[Sample]:
        """The operations that ended then: none is left out that is under way at an end."""
        return [
            one for one in self.samples[name] if begin_s <= one.began_s + one.took_ms / 1e3 < end_s
        ]

    def _good(self, name: str) -> bool:
        return any(not one.error for one in self.samples[name])

    async def _until(self, condition: Callable[[], bool], poll_s: float = 0.1) -> None:
        deadline = time.monotonic() + BEGINS_S
        while not condition():
            assert time.monotonic() < deadline, f"the victim does not work: {self._last_errors()}"
            await asyncio.sleep(poll_s)

    def _last_errors(self) -> list[str]:
        return [f"{name}: {all_[-1].error}" for name, all_ in self.samples.items() if all_]

    async def _keep(self, name: str, kind: type[Session]) -> None:
        session, due = kind(self.place, self.logins), time.monotonic()
        while True:
            error, began = "", time.monotonic()
            self._begun[name] = began
            try:
                await session.once()
            except (*LOST, Refused) as why:
                error = f"{name}: {why!r}"
                session.reset()
            took = (time.monotonic() - began) * 1e3
            if error or session.counted:
                self.samples[name].append(Sample(began, took, error))
            due = max(due + PERIOD_S[name], time.monotonic())
            await asyncio.sleep(AGAIN_S if error else due - time.monotonic())


class Session:
    """One operation again and again; `counted`: the last one was not the first on its connection,
    which a client does not do for each operation."""

    counted = True

    def __init__(self, place: Place, logins: dict[str, Login]) -> None:
        self.place, self.logins = place, logins
        self._tls = place.context()
        self._peer: Peer | None = None

    def reset(self) -> None:
        if self._peer is not None:
            self._peer.close()
        self._peer = None

    async def _connected(self, broker: int, user: str) -> Peer:
        peer = await Peer.connect(self.place.addresses[broker], self._tls)
        try:
            await peer.log_in(self.logins[user])
        except BaseException:
            peer.close()
            raise
        return peer

    async def once(self) -> None:
        self.counted = self._peer is not None
        if self._peer is None:
            self._peer = await self._begin()
        else:
            await self._do(self._peer)

    async def _begin(self) -> Peer:
        raise NotImplementedError

    async def _do(self, peer: Peer) -> None:
        raise NotImplementedError

    @contextlib.asynccontextmanager
    async def _asking(self, user: str) -> Any:
        """A connection to any broker for one question."""
        peer = await self._connected(0, user)
        try:
            yield peer
        finally:
            peer.close()


class Producing(Session):
    """A record at a time."""

    async def _begin(self) -> Peer:
        values = {
            "topics": [{"name": TOPIC}],
            "allow_auto_topic_creation": False,
            "include_cluster_authorized_operations": False,
            "include_topic_authorized_operations": False,
        }
        async with self._asking("victim") as peer:
            told = await peer.ask(ApiKey.METADATA, 9, values)
        checked("Metadata", [topic.error_code for topic in told.topics])
        return await self._connected(int(told.topics[0].partitions[0].leader_id), "victim")

    async def _do(self, peer: Peer) -> None:
        told = await peer.ask(ApiKey.PRODUCE, 9, produce_values(TOPIC, [0], a_batch(100)))
        rows = [one for topic in told.responses for one in topic.partition_responses]
        checked("Produce", [row.error_code for row in rows])


class Belonging(Session):
    """The only member of its group: it joins, then sends heartbeats and commits."""

    _generation, _member, _offset = -1, "", 0

    async def _begin(self) -> Peer:
        async with self._asking("victim") as peer:
            values = {"key_type": 0, "coordinator_keys": [GROUP]}
            told = await peer.ask(ApiKey.FIND_COORDINATOR, 4, values)
        (found,) = told.coordinators
        checked("FindCoordinator", [found.error_code])
        peer = await self._connected(int(found.node_id), "victim")
        if self._member:
            return peer  # as clients go on that lost their connection
        joined = await peer.ask(ApiKey.JOIN_GROUP, 3, join_values(GROUP, self._member, PROTOCOL))
        checked("JoinGroup", [joined.error_code])
        self._generation, self._member = int(joined.generation_id), str(joined.member_id)
        parts = [{"member_id": self._member, "assignment": PROTOCOL}]
        told = await peer.ask(
            ApiKey.SYNC_GROUP, 3, {**self._identity("generation_id"), "assignments": parts}
        )
        checked("SyncGroup", [told.error_code])
        return peer

    async def _do(self, peer: Peer) -> None:
        try:
            await self._heartbeat_and_commit(peer)
        except Refused as why:
            if any(code.name in str(why) for code in NO_MEMBER):
                self._member = ""
            raise

    async def _heartbeat_and_commit(self, peer: Peer) -> None:
        told = await peer.ask(ApiKey.HEARTBEAT, 3, self._identity("generation_id"))
        checked("Heartbeat", [told.error_code])
        self._offset += 1
        values = {
            **self._identity("generation_id_or_member_epoch"),
            "topics": [{"name": TOPIC, "partitions": [commit_row(0, self._offset, "")]}],
        }
        told = await peer.ask(ApiKey.OFFSET_COMMIT, 8, values)
        checked("OffsetCommit", [row.error_code for one in told.topics for row in one.partitions])

    def _identity(self, generation: str) -> dict[str, Any]:
        return {
            "group_id": GROUP,
            generation: self._generation,
            "member_id": self._member,
            "group_instance_id": None,
        }


class Asking(Session):
    """An administrator."""

    async def _begin(self) -> Peer:
        return await self._connected(0, "admin")

    async def _do(self, peer: Peer) -> None:
        values = {"include_cluster_authorized_operations": False}
        told = await peer.ask(ApiKey.DESCRIBE_CLUSTER, 0, values)
        checked("DescribeCluster", [told.error_code])


class LoggingIn(Session):
    """A new connection each time, to each broker in turn."""

    _turn = 0

    async def once(self) -> None:
        self._turn = (self._turn + 1) % len(self.place.addresses)
        (await self._connected(self._turn, "victim")).close()


def checked(what: str, codes: list[Any]) -> None:
    """Raises Refused where one is an error, or where there is none."""
    if not codes or any(codes):
        raise Refused(f"{what}: {codes!r}")


# --- requests -------------------------------------------------------------------------------------


def a_batch(size: int, count: int = 1) -> bytes:
    """Records of so many bytes each, all alike but for their offsets."""
    now_ms = time.time_ns() // 1_000_000
    head = BatchHeader(0, 0, -1, 2, 0, 0, count - 1, now_ms, now_ms, -1, -1, -1, count)
    return seal(head, b"".join(_records(size, count)))


def _records(size: int, count: int) -> Iterator[bytes]:
    value = bytes(size)
    for number in range(count):
        body = b"\0\0" + _varint(number) + b"\1" + _varint(size) + value + b"\0"
        yield _varint(len(body)) + body


def _varint(number: int) -> bytes:
    """Of one that is not negative."""
    left, out = number << 1, bytearray()
    while left > 0x7F:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    out.append(left)
    return bytes(out)


def produce_values(topic: str, indexes: list[int], records: bytes) -> dict[str, Any]:
    rows = [{"index": index, "records": records} for index in indexes]
    return {
        "transactional_id": None,
        "acks": -1,
        "timeout": 30_000,
        "topic_data": [{"name": topic, "partition_data": rows}],
    }


def commit_row(index: int, offset: int, metadata: str) -> dict[str, Any]:
    return {
        "partition_index": index,
        "committed_offset": offset,
        "committed_leader_epoch": -1,
        "committed_metadata": metadata,
    }


def join_values(group: str, member: str, protocol: bytes) -> dict[str, Any]:
    """Of JoinGroup 3, which asks for no member id before."""
    return {
        "group_id": group,
        "session_timeout": 60_000,
        "rebalance_timeout": 60_000,
        "member_id": member,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": protocol}],
    }
