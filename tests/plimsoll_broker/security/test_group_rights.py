"""Rights on groups: each API of a group needs one on it, and on the topics that it names; decided
again when an answer has waited."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

import pytest
from tests.plimsoll_broker.described import versions
from tests.plimsoll_broker.group_harness import GROUP, NOBODY, Harness, join_of
from tests.plimsoll_broker.security.secured import Secured, a_rule, codes_in

from plimsoll_broker.background import AT_ONCE
from plimsoll_broker.handlers.groups.group_api import BYTES_AT_ONCE
from plimsoll_broker.handlers.long_work import Aside
from plimsoll_broker.handlers.security.gate import guarded
from plimsoll_broker.security.authority import Rights
from plimsoll_core.errors import Code
from plimsoll_core.security.acl import Acl, AclOperation, ResourceType
from plimsoll_wire.api_versions import ApiKey

Op = AclOperation
DENIED = Code.GROUP_AUTHORIZATION_FAILED


def on_group(operation: AclOperation, name: str = "g") -> Acl:
    return a_rule(operation, name, ResourceType.GROUP)


class GroupsOfAlice(Harness):
    """AclQuestion by alice, whose rules a test adds and takes away."""

    def __init__(self, *acls: Acl) -> None:
        super().__init__()
        self.secured = Secured()
        if acls:
            self.secured.allow(*acls)
        self.handlers = guarded(self.handlers, self.secured.authority, Aside())
        self.connection.logged_in_as("User:alice")


MEMBER = {"generation_id": 1, "member_id": "m", "group_instance_id": None}
CASES: list[tuple[ApiKey, dict[str, Any], AclOperation]] = [
    (ApiKey.JOIN_GROUP, join_of(), Op.READ),
    (ApiKey.HEARTBEAT, {**GROUP, **MEMBER}, Op.READ),
    (
        ApiKey.LEAVE_GROUP,
        {**GROUP, "members": [{"member_id": "m", "group_instance_id": None, "reason": None}]},
        Op.READ,
    ),
    (
        ApiKey.SYNC_GROUP,
        {
            **GROUP,
            **MEMBER,
            "protocol_type": "consumer",
            "protocol_name": "range",
            "assignments": [],
        },
        Op.READ,
    ),
    (
        ApiKey.DESCRIBE_GROUPS,
        {"groups": ["g"], "include_authorized_operations": False},
        Op.DESCRIBE,
    ),
    (ApiKey.DELETE_GROUPS, {"groups_names": ["g"]}, Op.DELETE),
    (ApiKey.OFFSET_DELETE, {**GROUP, "topics": []}, Op.DELETE),
    (ApiKey.OFFSET_COMMIT, {**GROUP, **NOBODY, "topics": []}, Op.READ),
    (
        ApiKey.OFFSET_FETCH,
        {
            "groups": [{**GROUP, "topics": None, "member_id": None, "member_epoch": -1}],
            "require_stable": False,
        },
        Op.DESCRIBE,
    ),
]


@pytest.mark.parametrize(
    ("key", "values", "operation"), CASES, ids=lambda x: getattr(x, "name", "")
)
async def test_group_request_without_right_reaches_no_coordinator(
    key: ApiKey, values: dict[str, Any], operation: AclOperation
) -> None:
    others = [one for one in (Op.READ, Op.DESCRIBE, Op.DELETE, Op.ALTER) if one is not operation]
    if operation is Op.DESCRIBE:
        others = [Op.ALTER_CONFIGS]  # whatever else there is implies it
    harness = GroupsOfAlice(*(on_group(one) for one in others), on_group(operation, "other"))
    for version in versions(key)[-2:]:
        asked = {**values}
        if key is ApiKey.OFFSET_FETCH and version < 8:
            asked = {**GROUP, "topics": None, "require_stable": False}
        answer = await harness.ask(key, version, asked)
        if key is not ApiKey.OFFSET_COMMIT:
            assert int(DENIED) in codes_in(answer)
    assert not harness.coordinators.asked
    harness.secured.allow(on_group(operation))
    if key is not ApiKey.JOIN_GROUP:
        await harness.ask(key, versions(key)[-1], values)
    assert harness.coordinators.asked or key is ApiKey.JOIN_GROUP


async def test_commit_requires_read_on_group_and_topics() -> None:
    harness = GroupsOfAlice(on_group(Op.READ))
    assert await harness.commit(9, (0, 10)) == [Code.TOPIC_AUTHORIZATION_FAILED]
    harness.secured.allow(a_rule(Op.READ))
    assert await harness.commit(9, (0, 10)) == [0]
    harness.secured.forbid(on_group(Op.READ))
    assert await harness.commit(9, (0, 11)) == [DENIED]
    group = harness.coordinators.model.turn.state.groups["g"]
    assert group.offsets["orders"][0].offset == 10


async def test_long_unauthorized_commit_is_refused_and_audited(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It is read in a thread, where no event loop runs."""
    caplog.set_level(logging.INFO, "plimsoll.audit")
    harness = GroupsOfAlice(on_group(Op.READ))
    count = 3 * BYTES_AT_ONCE // 16  # partitions, of 16 bytes at least
    refused = await harness.commit(9, *((index, 10) for index in range(count)))
    assert set(refused) == {Code.TOPIC_AUTHORIZATION_FAILED}
    await asyncio.sleep(0)
    harness.secured.authority.close()
    (line,) = [json.loads(record.message) for record in caplog.records]
    assert (line["decision"], line["resource"], line["count"]) == ("Denied", "Topic:orders", 1)


async def test_offsets_are_returned_for_describable_topics() -> None:
    harness = GroupsOfAlice(on_group(Op.READ), a_rule(Op.READ))
    await harness.commit(9, (0, 10))
    assert await harness.fetch(9, [0]) == (0, {0: 10})
    assert await harness.fetch(9, None) == (0, {0: 10})
    harness.secured.forbid(a_rule(Op.READ))
    assert await harness.fetch(9, [0]) == (Code.TOPIC_AUTHORIZATION_FAILED, {0: -1})
    assert await harness.fetch(9, None) == (0, {})


async def test_describable_groups_are_listed() -> None:
    harness = GroupsOfAlice(on_group(Op.READ), a_rule(Op.READ))
    await harness.commit(9, (0, 10))

    async def listed() -> list[str]:
        values = {"states_filter": [], "types_filter": []}
        answer = await harness.ask(ApiKey.LIST_GROUPS, 5, values)
        assert answer.error_code == 0
        return [one.group_id for one in answer.groups]

    assert await listed() == ["g"]
    harness.secured.forbid(on_group(Op.READ))
    assert await listed() == []
    on_cluster = {"resource": ResourceType.CLUSTER, "name": "kafka-cluster"}
    harness.secured.allow(a_rule(Op.DESCRIBE, **on_cluster))
    assert await listed() == ["g"]


async def test_parked_join_is_authorized_again_when_answered() -> None:
    harness = GroupsOfAlice(on_group(Op.READ))
    first = await harness.ask(ApiKey.JOIN_GROUP, 9, join_of())
    assert first.error_code == Code.MEMBER_ID_REQUIRED
    parked = harness.parked(ApiKey.JOIN_GROUP, 9, join_of(member_id=first.member_id))
    assert not parked.reply.done()
    harness.secured.forbid(on_group(Op.READ))
    harness.coordinators.advance(3_000)
    assert (await parked.told()).error_code == DENIED


async def test_many_group_refusals_are_spread_over_turns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Before they are asked for, and again when they are answered."""
    harness, turns = GroupsOfAlice(), [0]
    decide = Rights._decide

    def counted(self: Rights, *question: Any) -> bool:
        turns[-1] += 1
        return decide(self, *question)

    async def ticks() -> None:
        while True:
            turns.append(0)
            await asyncio.sleep(0)

    monkeypatch.setattr(Rights, "_decide", counted)
    ticking = asyncio.ensure_future(ticks())
    names = [f"g-{number:04}" for number in range(5_000)]
    answer = await harness.ask(ApiKey.DELETE_GROUPS, 2, {"groups_names": names})
    ticking.cancel()
    assert {one.error_code for one in answer.results} == {DENIED}
    assert sum(turns) == 2 * len(names) == 2 * len(answer.results)
    assert max(turns) <= AT_ONCE
