"""What a hostile client does with its own names: acts, from which tenant_grammar.py draws.

Each takes its parameters by name.  It goes on until it is ended or has sent its bytes; whoever is
closed comes back.
"""

from __future__ import annotations

import asyncio
import dataclasses
import struct
import time
from functools import cache, partial
from typing import Any
from uuid import UUID

from tests.fuzz.frames import REQUESTS, Frames
from tests.integration.tenant_client import Login, Peer, frame
from tests.integration.tenant_foe import MIB, PARTITIONS, TOPIC, Foe
from tests.integration.tenant_victim import (
    a_batch,
    commit_row,
    join_values,
    produce_values,
)

from plimsoll_wire.api_versions import ApiKey
from plimsoll_wire.batches import BatchHeader, seal
from plimsoll_wire.compression import packed
from plimsoll_wire.headers import request_frame

OPENED_MAX = 20 * MIB
"""What a small batch opens to."""
METADATA_BYTES = 4_000


def group_of(foe: Foe, groups: int) -> str:
    return f"mallory.g{foe.dice.randrange(groups)}"


def stored_offsets(foe: Foe, groups: int, rows: int) -> bytes:
    text = "x" * METADATA_BYTES
    values = {
        "group_id": group_of(foe, groups),
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "group_instance_id": None,
        "topics": [{"name": TOPIC, "partitions": [commit_row(n, 1, text) for n in range(rows)]}],
    }
    return frame(ApiKey.OFFSET_COMMIT, 8, values)


async def commits(foe: Foe, connections: int, groups: int, rows: int) -> None:
    """Commits of 4 kB of metadata for each partition to thousands of groups."""
    await foe.often(connections, lambda: foe.flood(lambda: stored_offsets(foe, groups, rows)))


async def unread_offsets(foe: Foe, connections: int, groups: int, asked: int) -> None:
    """OffsetFetches of many groups, pipelined, whose replies are not read."""
    topics = [{"name": TOPIC, "partition_indexes": list(range(PARTITIONS))}]

    async def stored() -> None:
        await foe.flood(lambda: stored_offsets(foe, groups, PARTITIONS), pause_s=0.002)

    def request() -> bytes:
        named = [{"group_id": group_of(foe, groups), "topics": topics} for _ in range(asked)]
        return frame(ApiKey.OFFSET_FETCH, 8, {"groups": named, "require_stable": False})

    async with asyncio.TaskGroup() as group:
        group.create_task(foe.often(2, stored))
        group.create_task(foe.often(connections, lambda: foe.flood(request, deaf=True)))


async def half_requests(foe: Foe, connections: int, kilobytes: int, crawl_ms: int) -> None:
    """Produces that begin quickly, and go on by a byte now and then."""
    whole = request_frame(ApiKey.PRODUCE, 9, 1, "half", bytes(50 * MIB))

    async def one() -> None:
        async with foe.peer() as peer:
            await foe.send(peer, whole[: kilobytes * 1024])
            while True:
                await asyncio.sleep(crawl_ms / 1000)
                await foe.send(peer, b"\0")

    await foe.often(connections, one)


def _fetch(partitions: int, wait_ms: int, repeated: int = 1) -> bytes:
    rows = [
        {
            "partition": number % PARTITIONS,
            "current_leader_epoch": -1,
            "fetch_offset": 0 if not wait_ms else 2**40,
            "log_start_offset": -1,
            "partition_max_bytes": 50 * MIB,
        }
        for number in range(partitions)
    ]
    values = {
        "replica_id": -1,
        "max_wait": wait_ms,
        "min_bytes": 1 if not wait_ms else 2**30,
        "max_bytes": 50 * MIB,
        "isolation_level": 0,
        "session_id": 0,
        "session_epoch": -1,
        "topics": [{"topic": TOPIC, "partitions": rows}],
        "forgotten_topics_data": [],
        "rack_id": "",
    }
    return frame(ApiKey.FETCH, 11, values) * repeated


async def parked_fetches(foe: Foe, connections: int, partitions: int, wait_ms: int) -> None:
    """Fetches of many partitions that wait as long as they may, several on each connection."""
    request = _fetch(partitions, wait_ms)
    await foe.often(connections, lambda: foe.flood(lambda: request, pause_s=0.05))


async def unread_fetches(foe: Foe, connections: int, polls: int) -> None:
    """Fetches of all there is, pipelined, that are not read, and a producer for them."""
    record = a_batch(200_000)
    produced = frame(ApiKey.PRODUCE, 9, produce_values(TOPIC, list(range(PARTITIONS)), record))
    request = _fetch(PARTITIONS, 0, polls)

    async def produce() -> None:
        await foe.flood(lambda: produced, pause_s=0.5)

    async with asyncio.TaskGroup() as group:
        group.create_task(foe.often(1, produce))
        group.create_task(foe.often(connections, lambda: foe.flood(lambda: request, deaf=True)))


@cache
def _bomb(codec: int, uneven: int) -> bytes:
    """A few kilobytes that open to millions of records; `uneven`: no two of one size."""
    pattern = b"\x0c" + bytes(6) + (b"\x0e" + bytes(7)) * uneven
    count = OPENED_MAX // len(pattern) * (1 + uneven)
    records = pattern * (OPENED_MAX // len(pattern))
    head = BatchHeader(0, 0, -1, 2, 0, codec, count - 1, 1_000, 1_000, -1, -1, -1, count)
    return seal(head, packed(codec, records))


async def bombs(foe: Foe, connections: int, codec: int, uneven: int) -> None:
    """Small batches that open to millions of records; of a topic that may not be written, too."""
    made = await asyncio.to_thread(_bomb, codec, uneven)

    def request() -> bytes:
        topic = foe.dice.choice((TOPIC, TOPIC, "victim.orders"))
        return frame(ApiKey.PRODUCE, 9, produce_values(topic, list(range(PARTITIONS)), made))

    await foe.often(connections, lambda: foe.flood(request, pause_s=0.02))


async def produces(foe: Foe, connections: int, kilobytes: int, pause_ms: int) -> None:
    """Large batches, one after another."""
    record = a_batch(kilobytes * 1024)
    request = frame(ApiKey.PRODUCE, 9, produce_values(TOPIC, list(range(PARTITIONS)), record))
    await foe.often(connections, lambda: foe.flood(lambda: request, pause_s=pause_ms / 1000))


def timed_offsets(foe: Foe, topic: str, indexes: list[int]) -> bytes:
    """ListOffsets of moments that lie within logs."""
    now_ms = time.time_ns() // 1_000_000
    asked = [
        {
            "partition_index": index,
            "current_leader_epoch": -1,
            "timestamp": now_ms - foe.dice.randrange(100_000),
        }
        for index in indexes
    ]
    topics = [{"name": topic, "partitions": asked}]
    values = {"replica_id": -1, "isolation_level": 0, "topics": topics}
    return frame(ApiKey.LIST_OFFSETS, 6, values)


async def times(foe: Foe, connections: int, rows: int) -> None:
    """ListOffsets of moments that lie within logs."""

    indexes = [number % PARTITIONS for number in range(rows)]
    request = partial(timed_offsets, foe, TOPIC, indexes)
    await foe.often(connections, lambda: foe.flood(request, pause_s=0.01))


async def topics(foe: Foe, connections: int, made: int, partitions: int) -> None:
    """Topics of many partitions, made and deleted."""

    def request() -> bytes:
        names = [f"mallory.made{foe.dice.randrange(200)}" for _ in range(made)]
        if foe.dice.random() < 0.4:
            return frame(ApiKey.DELETE_TOPICS, 4, {"topic_names": names, "timeout": 5_000})
        rows = [
            {
                "name": name,
                "num_partitions": partitions,
                "replication_factor": 1,
                "assignments": [],
                "configs": [],
            }
            for name in set(names)
        ]
        values = {"topics": rows, "timeout": 5_000, "validate_only": False}
        return frame(ApiKey.CREATE_TOPICS, 5, values)

    await foe.often(connections, lambda: foe.flood(request, pause_s=0.1))


def _metadata(names: list[str] | None, create: int) -> bytes:
    values = {
        "topics": None if names is None else [{"name": name} for name in names],
        "allow_auto_topic_creation": bool(create),
        "include_cluster_authorized_operations": True,
        "include_topic_authorized_operations": True,
    }
    return frame(ApiKey.METADATA, 9, values)


async def metadata(foe: Foe, connections: int, names: int, create: int) -> None:
    """Metadata of many names that are not there, each another: noise for the audit log."""

    def request() -> bytes:
        prefix = foe.dice.choice(("mallory.", "victim.", "made-up-"))
        return _metadata([f"{prefix}{foe.dice.getrandbits(48):x}" for _ in range(names)], create)

    await foe.often(connections, lambda: foe.flood(request, pause_s=0.005))


async def configs(foe: Foe, connections: int, names: int, documented: int) -> None:
    """DescribeConfigs and Metadata of as much as there is."""

    def request() -> bytes:
        if foe.dice.random() < 0.3:
            return _metadata(None, 0)
        kinds = [(2, TOPIC), (4, "0"), (2, "victim.orders"), (2, "mallory.none")]
        rows = [
            {"resource_type": kind, "resource_name": name, "configuration_keys": None}
            for kind, name in (foe.dice.choice(kinds) for _ in range(names))
        ]
        values = {
            "resources": rows,
            "include_synonyms": True,
            "include_documentation": bool(documented),
        }
        return frame(ApiKey.DESCRIBE_CONFIGS, 4, values)

    await foe.often(connections, lambda: foe.flood(request, pause_s=0.01))


async def groups_listed(foe: Foe, connections: int, named: int) -> None:
    """ListGroups, and DescribeGroups of many."""

    def request() -> bytes:
        if foe.dice.random() < 0.5:
            return frame(ApiKey.LIST_GROUPS, 4, {"states_filter": []})
        names = [group_of(foe, 10_000) for _ in range(named)]
        values = {"groups": names, "include_authorized_operations": True}
        return frame(ApiKey.DESCRIBE_GROUPS, 5, values)

    await foe.often(connections, lambda: foe.flood(request, pause_s=0.005))


def _array(key: ApiKey, items: int) -> bytes:
    """A request with so many names or numbers, each unlike the others."""
    names = [f"{number:05}" for number in range(items)]
    match key:
        case ApiKey.DESCRIBE_GROUPS:
            return frame(key, 5, {"groups": names, "include_authorized_operations": False})
        case ApiKey.DESCRIBE_CONFIGS:
            row = {"resource_type": 2, "resource_name": TOPIC, "configuration_keys": names}
            values = {"include_synonyms": False, "include_documentation": False}
            return frame(key, 4, {"resources": [row], **values})
        case ApiKey.OFFSET_FETCH:
            named = [{"name": TOPIC, "partition_indexes": list(range(items))}]
            return frame(
                key, 7, {"group_id": "mallory.g1", "topics": named, "require_stable": False}
            )
    named = [{"name": TOPIC, "partition_indexes": list(range(items))}]
    return frame(ApiKey.DESCRIBE_PRODUCERS, 0, {"topics": named})


ARRAYS = (
    ApiKey.DESCRIBE_GROUPS,
    ApiKey.DESCRIBE_CONFIGS,
    ApiKey.OFFSET_FETCH,
    ApiKey.DESCRIBE_PRODUCERS,
)


async def arrays(foe: Foe, connections: int, items: int, deaf: int) -> None:
    """Arrays of names and of numbers: a few bytes each, and objects once they are parsed."""
    made = await asyncio.to_thread(lambda: [_array(key, items) for key in ARRAYS])
    flood = partial(foe.flood, lambda: foe.dice.choice(made), pause_s=0.05, deaf=bool(deaf))
    await foe.often(connections, flood)


async def members(foe: Foe, connections: int, groups: int, kilobytes: int) -> None:
    """Members that say much of themselves, and are new ones each time."""
    protocol = bytes(kilobytes * 1024)

    def request() -> bytes:
        return frame(ApiKey.JOIN_GROUP, 3, join_values(group_of(foe, groups), "", protocol))

    await foe.often(connections, lambda: foe.flood(request, pause_s=0.01))


async def connections_held(foe: Foe, connections: int) -> None:
    """Connections that ask nothing more."""

    async def one() -> None:
        async with foe.peer() as peer:
            foe.did["sent"] += 1
            await peer.discard()

    await foe.often(connections, one)


async def reconnects(foe: Foe, connections: int) -> None:
    """A login, and the end of the connection, again and again."""

    async def one() -> None:
        for _ in range(50):
            async with foe.peer():
                foe.did["sent"] += 1

    await foe.often(connections, one)


async def anything(foe: Foe, connections: int, damaged: int, deaf: int) -> None:
    """Any API in any version, with values of a stranger's choice, as it is or damaged."""
    frames = OwnFrames(foe.dice.randrange(2**31), UUID(int=foe.dice.getrandbits(128)))

    def request() -> bytes:
        if damaged:
            return frames.frame()
        key, version = foe.dice.choice(REQUESTS)
        return frames.request(key, version)

    await foe.often(connections, lambda: foe.flood(request, pause_s=0.005, deaf=bool(deaf)))


class OwnFrames(Frames):
    """About a hostile user's own names and, now and then, another's."""

    def _item(self, kind: Any, field: dataclasses.Field[Any]) -> Any:
        if not dataclasses.is_dataclass(kind) and field.metadata["kafka_type"] == "string":
            names = (TOPIC, "mallory.g1", "mallory.g2", "mallory.made1", "victim.orders")
            if self._dice.random() < 0.9:
                return self._dice.choice(names)
        return super()._item(kind, field)


async def half_handshakes(foe: Foe, connections: int, noise: int) -> None:
    """TLS that is not gone on with."""
    hello = bytes.fromhex("1603010200010001fc0303") + foe.dice.randbytes(32)

    async def one() -> None:
        peer = await Peer.connect(foe.dice.choice(foe.place.addresses), None)
        foe.did["connections"] += 1
        try:
            await foe.send(peer, foe.dice.randbytes(500) if noise else hello)
            await peer.discard()
        finally:
            peer.close()

    await foe.often(connections, one)


async def wrong_passwords(foe: Foe, connections: int, users: int) -> None:
    """Logins that fail, of users that are there and others."""

    async def one() -> None:
        name = foe.dice.choice(["victim", "admin", f"user{foe.dice.randrange(users)}"])
        async with foe.peer(login=False) as peer:
            foe.did["sent"] += 1
            await peer.log_in(Login(name, "wrong"))

    await foe.often(connections, one)


async def before_login(foe: Foe, connections: int, size: int) -> None:
    """Requests and long frames before a login."""
    asked = {"client_software_name": "x", "client_software_version": "1"}

    def request() -> bytes:
        if foe.dice.random() < 0.5:
            return frame(ApiKey.API_VERSIONS, 3, asked)
        return struct.pack(">ihhih", size, foe.dice.randrange(70), 0, 1, -1)

    async def one() -> None:
        async with foe.peer(login=False) as peer:
            reading = asyncio.create_task(peer.discard())
            try:
                while not reading.done():
                    await foe.send(peer, request())
                    await asyncio.sleep(0.01)
            finally:
                reading.cancel()
                await asyncio.gather(reading, return_exceptions=True)

    await foe.often(connections, one)


async def producers(foe: Foe, connections: int) -> None:
    """Producer ids, as many as there are."""
    values = {
        "transactional_id": None,
        "transaction_timeout": 60_000,
        "producer_id": -1,
        "producer_epoch": -1,
    }
    await foe.often(
        connections, lambda: foe.flood(lambda: frame(ApiKey.INIT_PRODUCER_ID, 3, values))
    )
