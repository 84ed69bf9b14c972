"""Requests about groups keep the order of their connection, however long one takes to read."""

import asyncio
from typing import Any

import pytest
from tests.plimsoll_broker.group_harness import (
    GROUP,
    Harness,
    commit_of,
    join_of,
    leave_of,
    sync_of,
)

from plimsoll_broker.handlers.groups import group_api
from plimsoll_broker.server.connection_state import CloseConnection, ConnectionState
from plimsoll_core.groups import operations as o
from plimsoll_core.groups.membership import JoinGroup, LeaveGroup, SyncGroup
from plimsoll_wire.api_versions import ApiKey
from plimsoll_wire.messages import decode_response, encode_request
from plimsoll_wire.primitives import MalformedMessage

MANY = [(index % 3, index) for index in range(2_000)]


def body(key: ApiKey, version: int, values: dict[str, Any]) -> bytes:
    return encode_request(key, version, values)


def long_commit() -> bytes:
    data = body(ApiKey.OFFSET_COMMIT, 8, commit_of(*MANY))
    assert len(data) > group_api.BYTES_AT_ONCE
    return data


def fetch_one() -> bytes:
    topics = [{"name": "orders", "partition_indexes": [1]}]
    return body(ApiKey.OFFSET_FETCH, 7, {**GROUP, "topics": topics, "require_stable": False})


async def test_short_request_behind_long_one_waits() -> None:
    harness = Harness(looks_on=True)
    commit = harness.begin(ApiKey.OFFSET_COMMIT, 8, long_commit())
    fetch = harness.begin(ApiKey.OFFSET_FETCH, 7, fetch_one())
    assert harness.coordinators.asked == []
    reply: Any = decode_response(ApiKey.OFFSET_FETCH, 7, await fetch)  # type: ignore[arg-type]
    assert reply.topics[0].partitions[0].committed_offset == 1_999
    assert [type(op) for op in harness.coordinators.asked] == [o.CommitOffsets] * 4 + [
        o.FetchOffsets
    ]
    await commit


async def test_other_connections_ignore_a_long_request() -> None:
    harness = Harness(looks_on=True)
    commit = harness.begin(ApiKey.OFFSET_COMMIT, 8, long_commit())
    fetch = harness.begin(ApiKey.OFFSET_FETCH, 7, fetch_one(), ConnectionState())
    assert fetch.done()
    assert [type(op) for op in harness.coordinators.asked] == [o.FetchOffsets]
    await commit


async def test_request_of_many_operations_precedes_later_ones() -> None:
    harness = Harness(looks_on=True)
    names = [f"g{number}" for number in range(20)]
    data = body(ApiKey.DESCRIBE_GROUPS, 0, {"groups": names})
    assert len(data) < group_api.BYTES_AT_ONCE
    describe = harness.begin(ApiKey.DESCRIBE_GROUPS, 0, data)
    fetch = harness.begin(ApiKey.OFFSET_FETCH, 7, fetch_one())
    assert len(harness.coordinators.asked) == group_api.ASKED_AT_ONCE
    await asyncio.gather(describe, fetch)
    asked: list[Any] = harness.coordinators.asked
    # Room for all answers is taken before the first of them are kept, so those are asked for again.
    first = names[: group_api.ASKED_AT_ONCE]
    assert [op.group_id for op in asked] == [*first, *names, "g"]


async def test_commit_and_leave_follow_a_long_join() -> None:
    """A member that commits, joins with much to say, and leaves at once."""
    harness = Harness(looks_on=True)
    joined = await harness.stable()
    harness.coordinators.asked.clear()
    protocols = [{"name": "range", "metadata": b"x" * 2 * group_api.BYTES_AT_ONCE}]
    mine = {"member_id": str(joined.member_id)}
    requests = [
        (ApiKey.JOIN_GROUP, 9, join_of(**mine, protocols=protocols)),
        (ApiKey.SYNC_GROUP, 5, sync_of(joined)),
        (ApiKey.LEAVE_GROUP, 5, leave_of(mine)),
    ]
    begun = [harness.begin(key, version, body(key, version, v)) for key, version, v in requests]
    await asyncio.gather(*begun)
    kinds = [type(op) for op in harness.coordinators.asked]
    assert kinds == [JoinGroup, SyncGroup, LeaveGroup]
    assert harness.coordinators.model.turn.soft.classic == {}


async def test_what_waits_to_be_answered_holds_up_nobody() -> None:
    """A parked join is decided: what comes behind it is decided at once."""
    harness = Harness(looks_on=True)
    protocols = [{"name": "range", "metadata": b"x" * 2 * group_api.BYTES_AT_ONCE}]
    join = harness.begin(
        ApiKey.JOIN_GROUP, 0, body(ApiKey.JOIN_GROUP, 0, join_of(protocols=protocols))
    )
    await harness.begin(ApiKey.OFFSET_FETCH, 7, fetch_one())
    assert not join.done()
    assert harness.begin(ApiKey.OFFSET_FETCH, 7, fetch_one()).done()
    join.cancel()
    for _ in range(5):
        await asyncio.sleep(0)
    assert len(harness.coordinators.model.turn.soft.classic["g"].members) == 0


async def test_nothing_is_decided_behind_unreadable_long_request() -> None:
    harness = Harness()
    spoilt = harness.begin(ApiKey.OFFSET_COMMIT, 8, b"\xff" * 10_000)
    fetch = harness.begin(ApiKey.OFFSET_FETCH, 7, fetch_one())
    with pytest.raises(MalformedMessage):
        await spoilt
    with pytest.raises(CloseConnection):
        await fetch
    assert harness.coordinators.asked == []
