"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup in every version, asked as a member would; the
codes are those of Kafka's group coordinator."""

import asyncio
from typing import Any

import pytest
from tests.plimsoll_broker.described import versions
from tests.plimsoll_broker.group_harness import (
    SESSION_MS,
    Harness,
    join_of,
    leave_of,
    member_of,
    sync_of,
)

from plimsoll_broker.handlers.groups.group_api import PARTITIONS_AT_ONCE
from plimsoll_core.coordination.outcome import RefusedAsWhole
from plimsoll_core.errors import Code
from plimsoll_core.groups.membership import LeaveGroup
from plimsoll_core.groups.settings import MEMBER_BYTES_MAX
from plimsoll_core.groups.step import _RULES as RULES
from plimsoll_wire.api_versions import ApiKey

JOINS, SYNCS = versions(ApiKey.JOIN_GROUP), versions(ApiKey.SYNC_GROUP)
HEARTBEATS, LEAVES = versions(ApiKey.HEARTBEAT), versions(ApiKey.LEAVE_GROUP)
EVERY = [
    (key, version)
    for key in (ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP, ApiKey.HEARTBEAT, ApiKey.LEAVE_GROUP)
    for version in versions(key)
]
IDS = [f"{key.name}-{version}" for key, version in EVERY]


@pytest.fixture
def harness() -> Harness:
    return Harness()


def asked(key: ApiKey, **more: Any) -> dict[str, Any]:
    """A request of a member "m" of generation 1."""
    member: dict[str, Any] = {"member_id": "m", "generation_id": 1, "group_instance_id": None}
    match key:
        case ApiKey.JOIN_GROUP:
            return join_of(**{"member_id": "m", **more})
        case ApiKey.LEAVE_GROUP:
            return leave_of({"member_id": "m"}, **more)
    names = {"protocol_type": "consumer", "protocol_name": "range", "assignments": []}
    return {"group_id": "g", **member, **names, **more}


def code_of(reply: Any) -> int:
    """The whole request's, or its first member's."""
    members = getattr(reply, "members", ()) if int(reply.error_code) == 0 else ()
    return int(members[0].error_code) if members else int(reply.error_code)


# --- a member's life -----------------------------------------------------------------------------


@pytest.mark.parametrize("version", JOINS)
async def test_member_joins_and_hears_its_generation(harness: Harness, version: int) -> None:
    reply = await harness.join(version)
    if version >= 4:
        assert (int(reply.error_code), int(reply.generation_id)) == (79, -1)
        assert str(reply.member_id).startswith("c-")
        reply = await harness.join(version, member_id=str(reply.member_id))
    assert (int(reply.error_code), int(reply.generation_id)) == (0, 1)
    assert reply.leader == reply.member_id
    assert reply.protocol_name == "range"
    assert [(one.member_id, bytes(one.metadata)) for one in reply.members] == [
        (reply.member_id, b"topics")
    ]
    if version >= 7:
        assert reply.protocol_type == "consumer"
    if version >= 9:
        assert not reply.skip_assignment
    members = harness.coordinators.model.turn.soft.classic["g"].members
    (member,) = members.values()
    assert member.rebalance_timeout_ms == (SESSION_MS if version == 0 else 30_000)
    assert (member.client_id, member.client_host) == ("c", "/127.0.0.1")


@pytest.mark.parametrize("version", SYNCS)
async def test_member_gets_its_part(harness: Harness, version: int) -> None:
    joined = await harness.joined()
    parts = [
        {"member_id": str(joined.member_id), "assignment": b"part"},
        {"member_id": "nobody", "assignment": b"x"},
        {"member_id": str(joined.member_id), "assignment": b"the last one counts"},
    ]
    values = sync_of(joined, assignments=parts)
    for _ in range(2):
        reply = await harness.ask(ApiKey.SYNC_GROUP, version, values)
        assert (int(reply.error_code), bytes(reply.assignment)) == (0, b"the last one counts")
        if version >= 5:
            assert (reply.protocol_type, reply.protocol_name) == ("consumer", "range")


@pytest.mark.parametrize("version", HEARTBEATS)
async def test_member_lives(harness: Harness, version: int) -> None:
    joined = await harness.stable()
    for _ in range(3):
        harness.coordinators.advance(SESSION_MS - 1)
        reply = await harness.ask(ApiKey.HEARTBEAT, version, member_of(joined))
        assert int(reply.error_code) == 0
    harness.parked(ApiKey.JOIN_GROUP, 0, join_of())
    reply = await harness.ask(ApiKey.HEARTBEAT, version, member_of(joined))
    assert int(reply.error_code) == Code.REBALANCE_IN_PROGRESS
    harness.coordinators.advance(60_000)
    reply = await harness.ask(ApiKey.HEARTBEAT, version, member_of(joined))
    assert int(reply.error_code) == Code.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("version", LEAVES)
async def test_members_leave(harness: Harness, version: int) -> None:
    joined = await harness.stable()
    mine = {"member_id": str(joined.member_id)}
    reply = await harness.ask(ApiKey.LEAVE_GROUP, version, leave_of(mine, {"member_id": "m"}))
    assert int(reply.error_code) == 0
    if version >= 3:
        told = [(one.member_id, int(one.error_code)) for one in reply.members]
        assert told == [(joined.member_id, 0), ("m", 25)]
    assert harness.coordinators.model.turn.soft.classic == {}
    reply = await harness.ask(ApiKey.LEAVE_GROUP, version, leave_of(mine))
    assert code_of(reply) == Code.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("version", [v for v in LEAVES if v >= 3])
async def test_administrator_sends_a_static_member_away(harness: Harness, version: int) -> None:
    await harness.stable(group_instance_id="i")
    rows = [
        {"member_id": "", "group_instance_id": "i"},
        {"member_id": "", "group_instance_id": "i"},
        {"member_id": "m", "group_instance_id": "none"},
        {"member_id": ""},
    ]
    reply = await harness.ask(ApiKey.LEAVE_GROUP, version, leave_of(*rows))
    assert [int(one.error_code) for one in reply.members] == [0, 25, 25, 25]
    reply = await harness.ask(ApiKey.LEAVE_GROUP, version, leave_of())
    assert (int(reply.error_code), reply.members) == (0, ())


async def test_many_members_leave_in_several_decisions(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """20,000 names in one request were one decision, which held the event loop."""
    joined = await harness.stable()
    decided: list[int] = []
    leave = RULES[LeaveGroup]

    def counted(turn: Any, op: LeaveGroup, token: object) -> Any:
        decided.append(len(op.members))
        return leave(turn, op, token)

    monkeypatch.setitem(RULES, LeaveGroup, counted)
    names = [str(number) for number in range(2 * PARTITIONS_AT_ONCE)] + [str(joined.member_id)]
    rows = [{"member_id": name} for name in names]
    reply = await harness.ask(ApiKey.LEAVE_GROUP, LEAVES[-1], leave_of(*rows))
    assert [one.member_id for one in reply.members] == names
    codes = [int(one.error_code) for one in reply.members]
    assert codes == [25] * 2 * PARTITIONS_AT_ONCE + [0]
    assert decided == [PARTITIONS_AT_ONCE, PARTITIONS_AT_ONCE, 1]


@pytest.mark.parametrize("version", [v for v in JOINS if v >= 5])
async def test_static_member_comes_back_under_another_id(harness: Harness, version: int) -> None:
    first = await harness.stable(group_instance_id="i")
    again = await harness.join(version, group_instance_id="i")
    assert (int(again.error_code), int(again.generation_id)) == (0, 1)
    assert again.member_id != first.member_id
    assert again.leader == (again.member_id if version >= 9 else first.member_id)
    if version >= 9:
        assert again.skip_assignment
    fenced = member_of(first, group_instance_id="i")
    for key, values in (
        (ApiKey.HEARTBEAT, fenced),
        (ApiKey.SYNC_GROUP, sync_of(first, group_instance_id="i")),
        (ApiKey.JOIN_GROUP, join_of(member_id=str(first.member_id), group_instance_id="i")),
    ):
        reply = await harness.ask(key, max(versions(key)), values)
        assert int(reply.error_code) == Code.FENCED_INSTANCE_ID, key


async def test_leader_hears_of_very_many_members(harness: Harness) -> None:
    """Such an answer is written in a thread."""
    harness = Harness(looks_on=True)
    parked = [harness.parked(ApiKey.JOIN_GROUP, 0, join_of()) for _ in range(1_000)]
    harness.coordinators.advance(3_000)
    harness.coordinators.advance(27_000)
    replies = [await one.told() for one in parked]
    assert {int(one.error_code) for one in replies} == {0}
    assert sorted(len(one.members) for one in replies)[-2:] == [0, 1_000]


async def test_disconnected_new_member_is_not_awaited(harness: Harness) -> None:
    """Also when it closes in the very turn in which the request came."""
    for turns in (0, 3):
        parked = harness.parked(ApiKey.JOIN_GROUP, 0, join_of())
        for _ in range(turns):
            await asyncio.sleep(0)
        parked.reply.cancel()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert len(harness.coordinators.model.turn.soft.classic["g"].members) == 0


# --- refusals ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("key", "version"), EVERY, ids=IDS)
@pytest.mark.parametrize(
    ("group_id", "code"), [("", 24), ("g" * 255, 25), ("g" * 256, 24), ("ö" * 128, 24)]
)
async def test_group_needs_a_name_of_a_bounded_length(
    harness: Harness, key: ApiKey, version: int, group_id: str, code: int
) -> None:
    """Those of 255 bytes are looked for: there is no such member."""
    reply = await harness.ask(key, version, asked(key, group_id=group_id))
    if (key, code) == (ApiKey.LEAVE_GROUP, 25):
        assert code_of(reply) == code
    else:
        assert int(reply.error_code) == code
    assert harness.coordinators.model.log == []
    assert len(harness.coordinators.model.turn.soft.deadlines) == 0


@pytest.mark.parametrize(("key", "version"), EVERY, ids=IDS)
async def test_refusal_of_the_coordinator_is_told(
    harness: Harness, key: ApiKey, version: int
) -> None:
    loads = {ApiKey.HEARTBEAT: 15}.get(key, 14)
    for code, told in ((Code.NOT_COORDINATOR, 16), (Code.COORDINATOR_LOAD_IN_PROGRESS, loads)):
        harness.coordinators.refusal = RefusedAsWhole(code)
        reply = await harness.ask(key, version, asked(key))
        assert int(reply.error_code) == told
        if key is ApiKey.JOIN_GROUP:
            assert (reply.member_id, int(reply.generation_id)) == ("m", -1)
            assert reply.protocol_name == (None if version >= 7 else "")


@pytest.mark.parametrize(
    ("key", "version"), [one for one in EVERY if one[0] in (ApiKey.SYNC_GROUP, ApiKey.HEARTBEAT)]
)
@pytest.mark.parametrize("generation", [-1, 0, 2, 2**31 - 1, -(2**31)])
async def test_member_of_another_generation_is_refused(
    harness: Harness, key: ApiKey, version: int, generation: int
) -> None:
    joined = await harness.stable()
    values = asked(key, member_id=str(joined.member_id), generation_id=generation)
    reply = await harness.ask(key, version, values)
    assert int(reply.error_code) == Code.ILLEGAL_GENERATION


@pytest.mark.parametrize("version", JOINS)
@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({"session_timeout": -1}, 26),
        ({"session_timeout": -(2**31)}, 26),
        ({"session_timeout": 5_999}, 26),
        ({"session_timeout": 1_800_001}, 26),
        ({"session_timeout": 2**31 - 1}, 26),
        ({"member_id": "m"}, 25),
        ({"member_id": "m" * 30_000}, 25),
        ({"protocols": []}, 23),
        ({"protocol_type": ""}, 23),
        ({"protocols": [{"name": "r", "metadata": b"x" * MEMBER_BYTES_MAX}]}, 42),
    ],
    ids=lambda value: repr(value)[:60],
)
async def test_oversized_or_anonymous_join_is_refused(
    harness: Harness, version: int, more: dict[str, Any], code: int
) -> None:
    reply = await harness.ask(ApiKey.JOIN_GROUP, version, join_of(**more))
    assert int(reply.error_code) == code
    model = harness.coordinators.model
    assert (model.log, model.turn.soft.classic, model.turn.soft.seats) == ([], {}, 0)


@pytest.mark.parametrize("version", JOINS)
async def test_rebalance_timeout_that_is_negative_is_the_sessions(
    harness: Harness, version: int
) -> None:
    await harness.joined(version, rebalance_timeout=-(2**31))
    (member,) = harness.coordinators.model.turn.soft.classic["g"].members.values()
    assert member.rebalance_timeout_ms == SESSION_MS


@pytest.mark.parametrize("version", JOINS)
async def test_protocol_that_is_named_twice_counts_once(harness: Harness, version: int) -> None:
    """As Kafka counts: a set of names, of which the first metadata are told."""
    twice = [
        {"name": "range", "metadata": b"first"},
        {"name": "range", "metadata": b"second"},
        {"name": "", "metadata": b""},
    ]
    joined = await harness.joined(version, protocols=twice)
    assert (int(joined.error_code), joined.protocol_name) == (0, "range")
    assert [bytes(one.metadata) for one in joined.members] == [b"first"]
    await harness.ask(ApiKey.SYNC_GROUP, 5, sync_of(joined))
    only = [{"name": "other", "metadata": b""}]
    refused = await harness.ask(ApiKey.JOIN_GROUP, version, join_of(protocols=only))
    assert int(refused.error_code) == Code.INCONSISTENT_GROUP_PROTOCOL
    other = join_of(protocol_type="connect")
    refused = await harness.ask(ApiKey.JOIN_GROUP, version, other)
    assert int(refused.error_code) == Code.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize("version", SYNCS)
@pytest.mark.parametrize(
    "more",
    [
        {"protocol_type": "connect"},
        {"protocol_name": "other"},
        {"protocol_type": None},
        {"protocol_name": None},
        {"protocol_type": None, "protocol_name": None},
    ],
    ids=repr,
)
async def test_sync_with_wrong_protocol_is_refused_from_v5(
    harness: Harness, version: int, more: dict[str, Any]
) -> None:
    joined = await harness.stable()
    reply = await harness.ask(ApiKey.SYNC_GROUP, version, sync_of(joined, **more))
    refused = version >= 5
    assert int(reply.error_code) == (Code.INCONSISTENT_GROUP_PROTOCOL if refused else 0)
    assert bytes(reply.assignment) == (b"" if refused else b"part")
