"""Hostile requests about groups: each costs its own connection or group at most."""

import struct
from typing import Any

import pytest
from tests.holding import nothing_holds_the_loop
from tests.plimsoll_broker.described import versions
from tests.plimsoll_broker.group_harness import (
    GROUP,
    Harness,
    commit_of,
    join_of,
    leave_of,
    member_of,
    sync_of,
)

from plimsoll_broker.handlers.groups import group_api
from plimsoll_core.groups.records import OffsetCommitted
from plimsoll_core.groups.settings import MEMBER_BYTES_MAX, NAME_BYTES_MAX, GroupSettings
from plimsoll_core.groups.state import apply
from plimsoll_wire.api_versions import ApiKey, is_flexible
from plimsoll_wire.messages import encode_request
from plimsoll_wire.primitives import MalformedMessage

KEYS = [
    ApiKey.OFFSET_COMMIT,
    ApiKey.OFFSET_FETCH,
    ApiKey.OFFSET_DELETE,
    ApiKey.FIND_COORDINATOR,
    ApiKey.JOIN_GROUP,
    ApiKey.SYNC_GROUP,
    ApiKey.HEARTBEAT,
    ApiKey.LEAVE_GROUP,
    ApiKey.DESCRIBE_GROUPS,
    ApiKey.LIST_GROUPS,
    ApiKey.DELETE_GROUPS,
]
EVERY = [(key, version) for key in KEYS for version in versions(key)]
IDS = [f"{key.name}-{version}" for key, version in EVERY]


def well_formed(key: ApiKey) -> dict[str, Any]:
    """With something in every array."""
    member: dict[str, Any] = {"member_id": "m", "generation_id": 1, "group_instance_id": None}
    part = {"member_id": "m", "assignment": b"a"}
    row = {"partition_index": 0}
    fetched = {**GROUP, "topics": [{"name": "orders", "partition_indexes": [0]}]}
    values: dict[ApiKey, dict[str, Any]] = {
        ApiKey.OFFSET_COMMIT: commit_of((0, 1)),
        ApiKey.OFFSET_FETCH: {**fetched, "groups": [fetched], "require_stable": True},
        ApiKey.OFFSET_DELETE: {**GROUP, "topics": [{"name": "orders", "partitions": [row]}]},
        ApiKey.FIND_COORDINATOR: {"key": "g", "key_type": 0, "coordinator_keys": ["g"]},
        ApiKey.JOIN_GROUP: join_of(member_id="m"),
        ApiKey.SYNC_GROUP: {
            **GROUP,
            **member,
            "protocol_type": "consumer",
            "protocol_name": "range",
            "assignments": [part],
        },
        ApiKey.HEARTBEAT: {**GROUP, **member},
        ApiKey.LEAVE_GROUP: leave_of({"member_id": "m"}),
        ApiKey.DESCRIBE_GROUPS: {"groups": ["g"], "include_authorized_operations": True},
        ApiKey.LIST_GROUPS: {"states_filter": ["Stable"], "types_filter": ["classic"]},
        ApiKey.DELETE_GROUPS: {"groups_names": ["g"]},
    }
    return values[key]


async def heard(harness: Harness, key: ApiKey, version: int, body: bytes) -> bool:
    """Whether it was understood; else the session closes the connection."""
    harness.connection.line = None
    try:
        await harness.raw(key, version, body)
    except MalformedMessage:
        return False
    return True


@pytest.mark.slow
@pytest.mark.parametrize(("key", "version"), EVERY, ids=IDS)
async def test_truncated_request_is_malformed_and_changes_nothing(
    key: ApiKey, version: int
) -> None:
    harness = Harness()
    whole = encode_request(key, version, well_formed(key))
    assert await heard(harness, key, version, whole)
    state = dict(harness.coordinators.model.turn.state.groups)
    asked = len(harness.coordinators.asked)
    for end in range(len(whole)):
        assert not await heard(harness, key, version, whole[:end]), end
    assert harness.coordinators.model.turn.state.groups == state
    assert len(harness.coordinators.asked) == asked


@pytest.mark.slow
@pytest.mark.parametrize(("key", "version"), EVERY, ids=IDS)
async def test_huge_sizes_close_connection_and_null_is_ordinary(key: ApiKey, version: int) -> None:
    """In the place of any two, four or, in flexible versions, one byte."""
    harness = Harness(looks_on=True)
    whole = encode_request(key, version, well_formed(key))
    sizes = [struct.pack(">i", size) for size in (-1, -(2**31), 2**31 - 1, 2**24)]
    sizes += [struct.pack(">h", size) for size in (-1, -(2**15), 2**15 - 1)]
    if is_flexible(key, version):
        sizes += [b"\0", b"\xff\xff\xff\xff\x0f", b"\xff" * 10]
    with nothing_holds_the_loop():
        for start in range(len(whole)):
            for size in sizes:
                spoilt = whole[:start] + size + whole[start + len(size) :]
                await heard(harness, key, version, spoilt)
    assert await heard(harness, key, version, whole)


@pytest.mark.parametrize(("key", "version"), EVERY, ids=IDS)
async def test_array_with_only_a_size_is_not_allocated(key: ApiKey, version: int) -> None:
    """Bytes that say how many follow, again and again."""
    harness = Harness(looks_on=True)
    for filler in (b"\0", b"\1", b"\x7f", b"\xff"):
        await heard(harness, key, version, filler * 40_000)
    assert harness.coordinators.model.log == []


# --- too many, too long --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "size"), [*((one, 1) for one in versions(ApiKey.JOIN_GROUP)), (9, 2_000)]
)
async def test_group_that_is_full_takes_no_other_member(version: int, size: int) -> None:
    harness = Harness(looks_on=True)
    harness.coordinators.model.change(settings=GroupSettings(group_size_max=size))
    key = ApiKey.JOIN_GROUP
    parked = [harness.parked(key, 3, join_of()) for _ in range(size)]
    assert not any(one.reply.done() for one in parked)
    reply = await harness.ask(key, version, join_of())
    assert (int(reply.error_code), reply.member_id) == (81, "")
    other = harness.parked(key, version, join_of(group_id="other"))
    assert other.reply.done() == (version >= 4), "another group has room"
    for one in (*parked, other):
        one.reply.cancel()


@pytest.mark.parametrize("version", versions(ApiKey.JOIN_GROUP))
async def test_metadata_limit_is_exact_to_the_byte(
    version: int,
) -> None:
    harness = Harness(looks_on=True)
    texts = ("range", "consumer", "c", "/127.0.0.1")
    most = MEMBER_BYTES_MAX - 64 - sum(map(len, texts))
    for size, code in ((most + 1, 42), (most, 0)):
        protocols = [{"name": "range", "metadata": b"x" * size}]
        reply = await harness.joined(version, protocols=protocols)
        assert int(reply.error_code) == code
    assert [len(one.metadata) for one in reply.members] == [most]


LONG = "ö" * (NAME_BYTES_MAX // 2)


@pytest.mark.parametrize("version", [v for v in versions(ApiKey.JOIN_GROUP) if v >= 6])
@pytest.mark.parametrize(
    "more",
    [
        {"protocol_type": LONG},
        {"protocols": [{"name": LONG, "metadata": b""}]},
        {"group_instance_id": LONG},
    ],
    ids=lambda more: next(iter(more)),
)
async def test_name_beyond_record_size_is_refused_first(version: int, more: dict[str, Any]) -> None:
    """Flexible requests hold longer strings than the record of a group.  The protocol type went
    into the group's last record, which a deadline writes: its broker ended."""
    harness = Harness(looks_on=True)
    (name,) = more
    longer: Any = LONG + "xx"
    if name == "protocols":
        longer = [{"name": longer, "metadata": b""}]
    reply = await harness.join(version, **{name: longer})
    turn = harness.coordinators.model.turn
    assert int(reply.error_code) == 42
    assert (turn.state.groups, turn.soft.classic, len(turn.soft.deadlines)) == ({}, {}, 0)
    joined = await harness.joined(version, **more)
    names = {
        "protocol_type": more.get("protocol_type", "consumer"),
        "protocol_name": str(joined.protocol_name),
        "group_instance_id": more.get("group_instance_id"),
    }
    values = {**sync_of(joined), **names}
    assert int((await harness.ask(ApiKey.SYNC_GROUP, 5, values)).error_code) == 0
    harness.coordinators.advance(60_000)  # its session ends, and the group's emptiness is stored
    stored = turn.state.groups["g"].stored
    assert stored is not None
    assert (stored.members, stored.generation) == ((), 2)


@pytest.mark.parametrize("version", versions(ApiKey.JOIN_GROUP))
async def test_client_id_without_room_for_suffix_is_refused(version: int) -> None:
    harness = Harness(looks_on=True)
    harness.client_id = "c" * (NAME_BYTES_MAX + 1)
    assert int((await harness.join(version)).error_code) == 42
    harness.client_id = "c" * NAME_BYTES_MAX
    assert int((await harness.join(version)).error_code) == (79 if version >= 4 else 0)


@pytest.mark.parametrize("version", versions(ApiKey.OFFSET_COMMIT))
async def test_repeated_topic_is_answered_twice_last_wins(
    version: int,
) -> None:
    harness = Harness()
    row = {"partition_index": 0, "committed_metadata": "", "committed_leader_epoch": 3}
    topics = [
        {"name": "orders", "partitions": [{**row, "committed_offset": 1}] * 2},
        {"name": "none", "partitions": [{**row, "committed_offset": 2}]},
        {"name": "", "partitions": []},
        {"name": "orders", "partitions": [{**row, "committed_offset": 3}]},
    ]
    reply = await harness.ask(ApiKey.OFFSET_COMMIT, version, commit_of(topics=topics))
    told = [(one.name, [int(row.error_code) for row in one.partitions]) for one in reply.topics]
    assert told == [("orders", [0, 0]), ("none", [3]), ("orders", [0])]
    assert await harness.fetch(9, [0]) == (0, {0: 3})


@pytest.mark.parametrize("version", versions(ApiKey.OFFSET_COMMIT))
@pytest.mark.parametrize("offset", [-(2**63), -1, 2**63 - 1])
async def test_offsets_are_the_clients_own(version: int, offset: int) -> None:
    """Kafka takes any, too."""
    harness = Harness()
    assert await harness.commit(version, (0, offset), retention_time=-(2**31)) == [0]
    assert await harness.fetch(9, [0]) == (0, {0: offset})


@pytest.mark.parametrize("version", [v for v in versions(ApiKey.OFFSET_COMMIT) if v <= 4])
@pytest.mark.parametrize("retention_ms", [2**63 - 1, 86_400_000_000_000_000, -(2**63)])
async def test_retention_of_any_length_is_taken(version: int, retention_ms: int) -> None:
    """A client that means for ever sends Long.MAX_VALUE: its connection was closed."""
    harness = Harness()
    assert await harness.commit(version, (0, 7), retention_time=retention_ms) == [0]
    harness.coordinators.advance(30 * 86_400_000)
    left = {0: -1 if retention_ms < 0 else 7}
    assert await harness.fetch(9, [0]) == (0, left)


@pytest.mark.parametrize("version", versions(ApiKey.OFFSET_COMMIT))
async def test_commit_metadata_is_limited_in_bytes(version: int) -> None:
    harness = Harness()
    for text, code in (("ö" * 2_048, 0), ("ö" * 2_048 + "x", 12)):
        row = {"partition_index": 0, "committed_offset": 1, "committed_metadata": text}
        topics = [{"name": "orders", "partitions": [row]}]
        reply = await harness.ask(ApiKey.OFFSET_COMMIT, version, commit_of(topics=topics))
        assert int(reply.topics[0].partitions[0].error_code) == code


@pytest.mark.parametrize("version", versions(ApiKey.OFFSET_COMMIT))
async def test_commit_of_stranger_is_refused(version: int) -> None:
    harness = Harness()
    joined = await harness.stable()
    mine = {"member_id": str(joined.member_id)}
    for generation, member, code in (
        (-1, {"member_id": ""}, 25),
        (1, {"member_id": "m"}, 25),
        (0, mine, 22),
        (-(2**31), mine, 22),
        (2**31 - 1, mine, 22),
        (1, mine, 0),
    ):
        more = {"generation_id_or_member_epoch": generation, **member}
        assert await harness.commit(version, (0, 1), **more) == [code], generation


@pytest.mark.parametrize("version", [v for v in versions(ApiKey.OFFSET_FETCH) if v >= 8])
async def test_group_repeated_in_fetch_is_answered_once(version: int) -> None:
    """Else a short request would be answered by many times what is committed."""
    harness = Harness()
    await harness.commit(9, (0, 1))
    one = {**GROUP, "topics": None}
    values = {"groups": [one, {**one, "group_id": "h"}, one], "require_stable": False}
    reply = await harness.ask(ApiKey.OFFSET_FETCH, version, values)
    told = [(each.group_id, int(each.error_code), len(each.topics)) for each in reply.groups]
    assert told == [("g", 0, 1), ("h", 0, 0), ("g", 42, 0)]


async def test_repeated_offset_deletion_happens_once() -> None:
    harness = Harness()
    await harness.commit(9, (0, 1), (1, 1))
    row = {"partition_index": 0}
    topic = {"name": "orders", "partitions": [row, row, {"partition_index": -1}]}
    values = {**GROUP, "topics": [topic, topic]}
    reply = await harness.ask(ApiKey.OFFSET_DELETE, 0, values)
    codes = [int(one.error_code) for topic in reply.topics for one in topic.partitions]
    assert codes == [0, 0, 3] * 2
    assert len(harness.coordinators.model.log) == 3
    reply = await harness.ask(ApiKey.OFFSET_DELETE, 0, {"group_id": "", "topics": []})
    assert int(reply.error_code) == 24


@pytest.mark.parametrize("version", versions(ApiKey.SYNC_GROUP))
async def test_assignments_of_nobody_are_not_kept(version: int) -> None:
    harness = Harness(looks_on=True)
    joined = await harness.joined()
    parts = [{"member_id": f"m{n}", "assignment": b"x" * 100} for n in range(10_000)]
    values = sync_of(joined, assignments=parts)
    reply = await harness.ask(ApiKey.SYNC_GROUP, version, values)
    assert (int(reply.error_code), bytes(reply.assignment)) == (0, b"")
    stored = harness.coordinators.model.turn.state.groups["g"].stored
    assert [len(one.assignment) for one in stored.members] == [0]  # type: ignore[union-attr]


# --- very many -----------------------------------------------------------------------------------


@pytest.mark.slow
async def test_huge_offset_list_does_not_hold_loop() -> None:
    """A hundred thousand: they are copied at once, and gone through in a thread."""
    harness = Harness(looks_on=True)
    state = harness.coordinators.model.turn.state
    for at in range(100_000):
        record = OffsetCommitted(
            group_id="g", topic=f"t{at % 100}", partition=at // 100, offset=at, commit_ms=0
        )
        apply(state, record, at)
    with nothing_holds_the_loop():
        values = {"groups": [{**GROUP, "topics": None}], "require_stable": False}
        data = encode_request(ApiKey.OFFSET_FETCH, 9, values)
        reply = await harness.begin(ApiKey.OFFSET_FETCH, 9, data)
    assert len(reply) > 1_000_000


@pytest.mark.parametrize("key", [ApiKey.OFFSET_COMMIT, ApiKey.OFFSET_FETCH, ApiKey.OFFSET_DELETE])
async def test_request_of_many_partitions_does_not_hold_loop(key: ApiKey) -> None:
    harness = Harness(looks_on=True)
    await harness.commit(8, (0, 1))
    rows = list(range(10_000))
    commit = commit_of(*((row % 3, row) for row in rows))
    fetch = {"topics": [{"name": "orders", "partition_indexes": rows}], **GROUP}
    delete = {"topics": [{"name": "orders", "partitions": [{"partition_index": r} for r in rows]}]}
    version, values = {
        ApiKey.OFFSET_COMMIT: (8, commit),
        ApiKey.OFFSET_FETCH: (9, {"groups": [fetch], "require_stable": False}),
        ApiKey.OFFSET_DELETE: (0, {**GROUP, **delete}),
    }[key]
    data = encode_request(key, version, values)
    with nothing_holds_the_loop():
        await harness.begin(key, version, data)
    asked = harness.coordinators.asked
    assert len(asked) == 1 + len(rows) // group_api.PARTITIONS_AT_ONCE


async def test_unknown_members_leave_no_state() -> None:
    harness = Harness(looks_on=True)
    joined = await harness.stable()
    deadlines = len(harness.coordinators.model.turn.soft.deadlines)
    for number in range(1_000):
        values = member_of(joined, member_id=f"m{number}", group_instance_id=f"i{number}")
        reply = await harness.ask(ApiKey.HEARTBEAT, 4, values)
        assert int(reply.error_code) == 25
        rows = [{"member_id": f"m{number}"}] * 3
        await harness.ask(ApiKey.LEAVE_GROUP, 5, leave_of(*rows, group_id=f"g{number}"))
    soft = harness.coordinators.model.turn.soft
    assert (len(soft.deadlines), list(soft.classic), soft.seats) == (deadlines, ["g"], 1)
