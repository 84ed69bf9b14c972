"""More of what a hostile client does with its own names, added after tenant_attacks.py."""

from __future__ import annotations

import asyncio
import ssl
import urllib.error
from functools import partial
from typing import Any

from dev.local_api import LocalApi
from tests.integration.tenant_attacks import group_of, stored_offsets, timed_offsets
from tests.integration.tenant_client import MECHANISM, Peer, frame
from tests.integration.tenant_foe import MALLORY, MIB, PARTITIONS, TOPIC, Foe
from tests.integration.tenant_victim import a_batch, produce_values
from tests.plimsoll_core.security.scram_client import ScramClient

from plimsoll_wire.api_versions import ApiKey
from plimsoll_wire.primitives import uvarint

TIMEOUT = 5_000
BUSY_S = 0.005
OBJECTS = f"/apis/plimsoll.dev/v1alpha1/namespaces/{MALLORY}"
TINY = {
    "segment.bytes": str(MIB),
    "segment.index.bytes": str(64 * 1024),
    "segment.ms": "60000",
    "index.interval.bytes": "0",
}
"""The least that a client may state."""
AT_ONCE = 50
"""Connections that are opened one after another without a pause."""


def _created(names: list[str], partitions: int, configs: dict[str, str], *, tried: bool) -> bytes:
    """CreateTopics; `tried`: only validated."""
    stated = [{"name": name, "value": value} for name, value in configs.items()]
    rows = [
        {
            "name": name,
            "num_partitions": partitions,
            "replication_factor": 1,
            "assignments": [],
            "configs": stated,
        }
        for name in names
    ]
    return frame(
        ApiKey.CREATE_TOPICS, 5, {"topics": rows, "timeout": TIMEOUT, "validate_only": tried}
    )


def _grown(names: list[str], count: int, *, tried: bool) -> bytes:
    rows = [{"name": name, "count": count, "assignments": None} for name in names]
    values = {"topics": rows, "timeout": TIMEOUT, "validate_only": tried}
    return frame(ApiKey.CREATE_PARTITIONS, 1, values)


def _altered(names: list[str], configs: dict[str, str], *, tried: bool) -> bytes:
    stated = [
        {"name": name, "config_operation": 0, "value": value} for name, value in configs.items()
    ]
    rows = [{"resource_type": 2, "resource_name": name, "configs": stated} for name in names]
    return frame(ApiKey.INCREMENTAL_ALTER_CONFIGS, 0, {"resources": rows, "validate_only": tried})


async def _made(foe: Foe, names: list[str], partitions: int, configs: dict[str, str]) -> None:
    """Until a broker has answered; topics may be there already."""

    async def once() -> None:
        async with foe.peer() as peer:
            await foe.send(peer, _created(names, partitions, configs, tried=False))
            await peer.answered()

    await foe.until(once)


async def _coordinator(foe: Foe, group: str) -> int:
    """The broker that has the group, as the first broker knows it."""
    async with foe.peer() as peer:
        values = {"key_type": 0, "coordinator_keys": [group]}
        told = await peer.ask(ApiKey.FIND_COORDINATOR, 4, values)
    return max(0, int(told.coordinators[0].node_id))


async def tiny_segments(
    foe: Foe, connections: int, partitions: int, kilobytes: int, declared: int
) -> None:
    """Records into logs with the least segments; `declared`: of a Topic object, which may state
    smaller ones than a client."""
    name = f"{MALLORY}.tiny{partitions}.{declared}"
    if declared:
        config = {**TINY, "segment.bytes": str(64 * 1024)}
        spec = {"partitions": partitions, "replicationFactor": 1, "config": config}
        api = LocalApi(foe.place.directory)

        async def declare() -> None:
            await asyncio.to_thread(_apply, api, "Topic", name, spec)

        await foe.until(declare)
    else:
        await _made(foe, [name], partitions, TINY)
    record = a_batch(kilobytes * 1024)
    request = frame(ApiKey.PRODUCE, 9, produce_values(name, list(range(partitions)), record))
    await foe.often(connections, lambda: foe.flood(lambda: request, pause_s=BUSY_S))


async def static_rejoins(foe: Foe, connections: int, instances: int, kilobytes: int) -> None:
    """Static members that come back as new processes do, before the last answer."""
    metadata = bytes(kilobytes * 1024)

    def request() -> bytes:
        values = {
            "group_id": f"{MALLORY}.static",
            "session_timeout": 60_000,
            "rebalance_timeout": 60_000,
            "member_id": "",
            "group_instance_id": f"instance-{foe.dice.randrange(instances)}",
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": metadata}],
        }
        return frame(ApiKey.JOIN_GROUP, 5, values)

    async def one() -> None:
        broker = await _coordinator(foe, f"{MALLORY}.static")
        await foe.flood(request, pause_s=BUSY_S, broker=broker)

    await foe.often(connections, one)


async def assignments(foe: Foe, connections: int, rows: int, kilobytes: int) -> None:
    """A member alone in its group that assigns much, and joins again."""
    assigned = bytes(kilobytes * 1024)

    async def one() -> None:
        group = f"{MALLORY}.assigned{foe.dice.randrange(1_000)}"
        async with foe.peer(broker=await _coordinator(foe, group)) as peer:
            member = ""
            while True:
                values = {
                    "group_id": group,
                    "session_timeout": 60_000,
                    "rebalance_timeout": 60_000,
                    "member_id": member,
                    "protocol_type": "consumer",
                    "protocols": [{"name": "range", "metadata": foe.dice.randbytes(8)}],
                }
                joined = await peer.ask(ApiKey.JOIN_GROUP, 3, values)
                if joined.error_code:
                    raise ConnectionResetError(f"JoinGroup: {joined.error_code!r}")
                member = str(joined.member_id)
                names = [member, *(f"{member}-{number}" for number in range(rows - 1))]
                values = {
                    "group_id": group,
                    "generation_id": int(joined.generation_id),
                    "member_id": member,
                    "group_instance_id": None,
                    "assignments": [{"member_id": one, "assignment": assigned} for one in names],
                }
                await foe.send(peer, frame(ApiKey.SYNC_GROUP, 3, values))
                await peer.answered()

    await foe.often(connections, one)


async def validated(foe: Foe, connections: int, rows: int, partitions: int) -> None:
    """Changes of topics that are only validated."""
    new = [f"{MALLORY}.tried{number}" for number in range(rows)]
    requests = (
        _created(new, partitions, TINY, tried=True),
        _grown([TOPIC, *new], partitions + PARTITIONS, tried=True),
        _altered([TOPIC, *new], TINY, tried=True),
    )
    await foe.often(connections, lambda: foe.flood(lambda: foe.dice.choice(requests), pause_s=0.02))


async def altered(foe: Foe, connections: int, topics: int) -> None:
    """Configs of topics that change again and again."""
    names = [f"{MALLORY}.altered{number}" for number in range(topics)]

    def request() -> bytes:
        kept = {"retention.ms": str(foe.dice.randrange(60_000, 10**9))}
        return _altered(names, {**TINY, **kept}, tried=False)

    await _made(foe, names, 1, {})
    await foe.often(connections, lambda: foe.flood(request, pause_s=0.02))


async def grown(foe: Foe, connections: int, step: int) -> None:
    """Topics that get more and more partitions."""

    async def one() -> None:
        name, count = f"{MALLORY}.grown{foe.dice.randrange(100)}", 1
        async with foe.peer() as peer:
            await foe.send(peer, _created([name], count, {}, tried=False))
            await peer.answered()
            for _ in range(20):
                count += step
                await foe.send(peer, _grown([name], count, tried=False))
                await peer.answered()
            await foe.send(
                peer,
                frame(ApiKey.DELETE_TOPICS, 4, {"topic_names": [name], "timeout": TIMEOUT}),
            )
            await peer.answered()

    await foe.often(connections, one)


def _apply(api: LocalApi, kind: str, name: str, spec: dict[str, Any]) -> bool:
    """Create the object of the hostile namespace, or replace its spec; whether it was accepted."""
    body = {
        "apiVersion": "plimsoll.dev/v1alpha1",
        "kind": kind,
        "metadata": {"name": name, "namespace": MALLORY},
        "spec": {"clusterRef": {"name": "main", "namespace": "default"}, **spec},
    }
    path = f"{OBJECTS}/{kind.lower()}s"
    try:
        api.ask("POST", path, body)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code != 409:
            return False
        patch = {"spec": body["spec"]}
        api.ask("PATCH", f"{path}/{name}", patch, media="application/merge-patch+json")
    return True


async def objects(foe: Foe, connections: int, names: int, rules: int) -> None:
    """User and Topic objects of the hostile namespace, applied and deleted."""
    api = await asyncio.to_thread(LocalApi, foe.place.directory)

    def once() -> None:
        kind, number = foe.dice.choice(("User", "Topic")), foe.dice.randrange(names)
        name = f"{MALLORY}.object{number}" if kind == "Topic" else f"object{number}"
        if foe.dice.random() < 0.4:
            api.ask("DELETE", f"{OBJECTS}/{kind.lower()}s/{name}")
            return
        resources = [
            {"type": "Topic", "name": f"{MALLORY}.{number}", "pattern": "Literal"}
            for number in range(rules)
        ]
        acls = [{"resource": one, "operations": ["Read", "Write"]} for one in resources]
        spec: dict[str, dict[str, Any]] = {
            "User": {"authentication": {"scram": {}}, "acls": acls},
            "Topic": {
                "partitions": foe.dice.randrange(1, 10),
                "replicationFactor": 1,
                "config": {"retention.ms": str(foe.dice.randrange(60_000, 10**9))},
            },
        }
        _apply(api, kind, name, spec[kind])

    async def one() -> None:
        foe.did["sent"] += 1
        try:
            await asyncio.to_thread(once)
        except urllib.error.HTTPError as error:
            error.close()
            foe.did["refused"] += 1

    async def loop() -> None:
        for _ in range(AT_ONCE):
            await one()

    await foe.often(connections, loop)


def _tags(count: int, size: int) -> bytes:
    """Tagged fields that no release knows."""
    each = uvarint(size) + bytes(size)
    return uvarint(count) + b"".join(uvarint(1_000 + number) + each for number in range(count))


def _with_tags(key: ApiKey, version: int, values: dict[str, Any], tags: bytes) -> bytes:
    """A request of a flexible version with the tags behind its last field."""
    plain = frame(key, version, values)
    whole = plain[4:-1] + tags
    return len(whole).to_bytes(4, "big") + whole


async def tagged(foe: Foe, connections: int, tags: int, size: int) -> None:
    """Requests with tagged fields that the broker does not know."""
    extra = _tags(tags, size)
    software = {"client_software_name": "x", "client_software_version": "1"}
    requests = [_with_tags(ApiKey.API_VERSIONS, 3, software, extra)]
    if foe.login is not None:
        keys = {"key_type": 0, "coordinator_keys": [f"{MALLORY}.g1"]}
        requests.append(_with_tags(ApiKey.FIND_COORDINATOR, 4, keys, extra))
        produced = produce_values(TOPIC, [0], a_batch(100))
        requests.append(_with_tags(ApiKey.PRODUCE, 9, produced, extra))
    await foe.often(
        connections, lambda: foe.flood(lambda: foe.dice.choice(requests), pause_s=BUSY_S)
    )


async def records_deleted(foe: Foe, connections: int, rows: int) -> None:
    """DeleteRecords up to any offset, beside a producer."""
    produced = frame(ApiKey.PRODUCE, 9, produce_values(TOPIC, [*range(PARTITIONS)], a_batch(1_000)))

    def request() -> bytes:
        if foe.dice.random() < 0.3:
            return produced
        parts = [
            {
                "partition_index": number % PARTITIONS,
                "offset": foe.dice.choice((-1, foe.dice.randrange(1_000))),
            }
            for number in range(rows)
        ]
        values = {"topics": [{"name": TOPIC, "partitions": parts}], "timeout": TIMEOUT}
        return frame(ApiKey.DELETE_RECORDS, 1, values)

    await foe.often(connections, lambda: foe.flood(request, pause_s=0.01))


async def rules(foe: Foe, connections: int, rows: int) -> None:
    """CreateAcls, DeleteAcls and DescribeAcls of its own names."""

    def request() -> bytes:
        names = [f"{MALLORY}.{foe.dice.randrange(10_000)}" for _ in range(rows)]
        kind = foe.dice.randrange(3)
        if kind == 0:
            stated = [
                {
                    "resource_type": 2,
                    "resource_name": name,
                    "resource_pattern_type": 3,
                    "principal": f"User:{MALLORY}",
                    "host": "*",
                    "operation": 3,
                    "permission_type": 3,
                }
                for name in names
            ]
            return frame(ApiKey.CREATE_ACLS, 1, {"creations": stated})
        wanted = [
            {
                "resource_type_filter": 2,
                "resource_name_filter": name,
                "pattern_type_filter": foe.dice.choice((1, 2, 3)),
                "principal_filter": None,
                "host_filter": None,
                "operation": 1,
                "permission_type": 1,
            }
            for name in names
        ]
        if kind == 1:
            return frame(ApiKey.DELETE_ACLS, 1, {"filters": wanted})
        return frame(ApiKey.DESCRIBE_ACLS, 1, wanted[0])

    await foe.often(connections, lambda: foe.flood(request, pause_s=0.01))


async def passwords(foe: Foe, connections: int, rows: int, iterations: int) -> None:
    """AlterUserScramCredentials of itself, and what it may see of them."""
    login = foe.login
    assert login is not None

    def request() -> bytes:
        if foe.dice.random() < 0.3:
            return frame(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, {"users": None})
        names = [login.user, *(f"{login.user}.{number}" for number in range(rows - 1))]
        stated = [
            {
                "name": name,
                "mechanism": 2,
                "iterations": iterations,
                "salt": bytes(32),
                "salted_password": bytes(64),
            }
            for name in names
        ]
        values = {"deletions": [], "upsertions": stated}
        return frame(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, values)

    await foe.often(connections, lambda: foe.flood(request, pause_s=0.01))


async def times_of_many(foe: Foe, connections: int, partitions: int) -> None:
    """ListOffsets of moments within the logs of a topic with many partitions."""
    name = f"{MALLORY}.wide{partitions}"
    await _made(foe, [name], partitions, {})
    indexes = list(range(partitions))
    produced = frame(ApiKey.PRODUCE, 9, produce_values(name, indexes, a_batch(100)))

    def request() -> bytes:
        if foe.dice.random() < 0.02:
            return produced
        return timed_offsets(foe, name, indexes)

    await foe.often(connections, lambda: foe.flood(request, pause_s=0.05))


async def slow_frames(foe: Foe, connections: int, crawl_ms: int) -> None:
    """Small requests that come byte by byte."""
    software = {"client_software_name": "x" * 200, "client_software_version": "1"}
    request = frame(ApiKey.API_VERSIONS, 3, software)

    async def one() -> None:
        async with foe.peer() as peer:
            reading = asyncio.create_task(peer.discard())
            try:
                while not reading.done():
                    for at in range(len(request)):
                        await foe.send(peer, request[at : at + 1])
                        await asyncio.sleep(crawl_ms / 1000)
            finally:
                reading.cancel()
                await asyncio.gather(reading, return_exceptions=True)

    await foe.often(connections, one)


async def opened_and_closed(foe: Foe, connections: int, tls: int) -> None:
    """Connections that end at once; `tls`: after the handshake."""

    async def one() -> None:
        context: ssl.SSLContext | None = foe.tls if tls else None
        for _ in range(AT_ONCE):
            foe.did["sent"] += 1
            (await Peer.connect(foe.dice.choice(foe.place.addresses), context)).close()

    await foe.often(connections, one)


async def half_logins(foe: Foe, connections: int, held: int) -> None:
    """Logins that stop after the broker's challenge; `held`: the connection stays."""

    async def one() -> None:
        for _ in range(AT_ONCE):
            async with foe.peer(login=False) as peer:
                user = foe.dice.choice(("victim", "admin", f"user{foe.dice.randrange(1_000)}"))
                foe.did["sent"] += 1
                await peer.ask(ApiKey.SASL_HANDSHAKE, 1, {"mechanism": MECHANISM})
                first = ScramClient(user, "wrong", MECHANISM).first()
                await peer.ask(ApiKey.SASL_AUTHENTICATE, 2, {"auth_bytes": first})
                if held:
                    await peer.discard()

    await foe.often(connections, one)


async def relogins(foe: Foe, connections: int) -> None:
    """A login again and again on one connection."""
    login = foe.login
    assert login is not None

    async def one() -> None:
        async with foe.peer() as peer:
            while True:
                foe.did["sent"] += 1
                await peer.log_in(login)

    await foe.often(connections, one)


async def fetch_sessions(foe: Foe, connections: int, partitions: int) -> None:
    """Fetch sessions that are opened and left."""
    rows = [
        {
            "partition": number % PARTITIONS,
            "current_leader_epoch": -1,
            "fetch_offset": 2**40,
            "log_start_offset": -1,
            "partition_max_bytes": MIB,
        }
        for number in range(partitions)
    ]
    values = {
        "replica_id": -1,
        "max_wait": 0,
        "min_bytes": 0,
        "max_bytes": MIB,
        "isolation_level": 0,
        "session_id": 0,
        "session_epoch": 0,
        "topics": [{"topic": TOPIC, "partitions": rows}],
        "forgotten_topics_data": [],
        "rack_id": "",
    }
    request = frame(ApiKey.FETCH, 11, values)
    await foe.often(connections, lambda: foe.flood(lambda: request, pause_s=BUSY_S))


async def coordinators(foe: Foe, connections: int, keys: int) -> None:
    """FindCoordinator of many groups."""

    def request() -> bytes:
        begin = foe.dice.randrange(2**31)
        named = [f"{MALLORY}.{begin + number}" for number in range(keys)]
        values = {"key_type": foe.dice.choice((0, 0, 1)), "coordinator_keys": named}
        return frame(ApiKey.FIND_COORDINATOR, 4, values)

    await foe.often(connections, lambda: foe.flood(request, pause_s=0.01))


async def all_offsets(foe: Foe, connections: int, groups: int, asked: int) -> None:
    """OffsetFetch of all that many groups have stored."""

    def request() -> bytes:
        named = [{"group_id": group_of(foe, groups), "topics": None} for _ in range(asked)]
        return frame(ApiKey.OFFSET_FETCH, 8, {"groups": named, "require_stable": False})

    store = partial(foe.flood, lambda: stored_offsets(foe, groups, PARTITIONS), pause_s=0.01)
    async with asyncio.TaskGroup() as group:
        group.create_task(foe.often(1, store))
        group.create_task(foe.often(connections, lambda: foe.flood(request, pause_s=0.02)))


async def groups_deleted(foe: Foe, connections: int, named: int) -> None:
    """Offsets and groups that are stored and deleted."""

    def request() -> bytes:
        chance = foe.dice.random()
        if chance < 0.6:
            return stored_offsets(foe, 1_000, PARTITIONS)
        if chance < 0.8:
            names = [group_of(foe, 1_000) for _ in range(named)]
            return frame(ApiKey.DELETE_GROUPS, 1, {"groups_names": names})
        parts = [{"partition_index": number % PARTITIONS} for number in range(named)]
        values = {
            "group_id": group_of(foe, 1_000),
            "topics": [{"name": TOPIC, "partitions": parts}],
        }
        return frame(ApiKey.OFFSET_DELETE, 0, values)

    await foe.often(connections, lambda: foe.flood(request, pause_s=BUSY_S))


async def log_dirs(foe: Foe, connections: int, rows: int) -> None:
    """DescribeLogDirs of all, or of as many partitions; none: all."""
    named = [{"topic": TOPIC, "partitions": [number % PARTITIONS for number in range(rows)]}]
    request = frame(ApiKey.DESCRIBE_LOG_DIRS, 1, {"topics": named if rows else None})
    await foe.often(connections, lambda: foe.flood(lambda: request, pause_s=0.01))
