"""A group of a thousand members on a real log: nothing that happens to it holds the event loop."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from tests.holding import nothing_holds_the_loop
from tests.plimsoll_broker.coordinating_brokers import Member, Members, coordinator
from tests.plimsoll_broker.group_harness import join_of, leave_of, member_of, sync_of

from plimsoll_broker.coordinator.answers import ANSWERED_AT_ONCE, Asker, WaitingReplies
from plimsoll_broker.coordinator.coordinators import GROUPS_AT_ONCE
from plimsoll_broker.coordinator.group_shard import GroupShard
from plimsoll_broker.handlers.groups.group_api import ASKED_AT_ONCE
from plimsoll_broker.handlers.long_work import Aside
from plimsoll_broker.handlers.routes import group_handlers
from plimsoll_broker.server.connection_state import ConnectionState
from plimsoll_broker.server.dispatch import Reply, RequestContext
from plimsoll_core.coordination.outcome import RefusedAsWhole
from plimsoll_core.coordination.outcome import Reply as CoordinatorReply
from plimsoll_core.errors import Code
from plimsoll_core.groups.state import Group
from plimsoll_wire.api_versions import ApiKey
from plimsoll_wire.messages import decode_response, encode_request

MANY = 1_000


class Clients:
    """Each has a connection of its own to one coordinator's handlers."""

    def __init__(self, member: Member) -> None:
        self.member = member
        view = SimpleNamespace(image=member.broker.manager.image, aside=Aside())
        self.handlers = group_handlers(view, member.coordinators)  # type: ignore[arg-type]
        self.connections = [ConnectionState() for _ in range(MANY)]

    async def ask(self, key: ApiKey, version: int, requests: list[dict[str, Any]]) -> list[Any]:
        """One of each connection, a few a turn as they come in."""
        replies = []
        for connection, values in zip(self.connections, requests, strict=False):
            replies.append(self._begin(key, version, connection, values))
            await asyncio.sleep(0)
        whole: list[Reply] = await asyncio.gather(*replies)
        told = []
        for one in whole:
            # Clients of their own would read them: a turn of this loop is the coordinator's.
            await asyncio.sleep(0)
            told.append(decode_response(key, version, one))  # type: ignore[arg-type]
        return told

    def _begin(
        self, key: ApiKey, version: int, connection: ConnectionState, values: dict[str, Any]
    ) -> asyncio.Future[Reply]:
        body = encode_request(key, version, values)
        context = RequestContext(key, version, 7, memoryview(bytearray(body)), connection)
        context.client_id, context.connection.client = "client", "127.0.0.1:9"
        reply: Any = self.handlers[key](context)
        if asyncio.isfuture(reply):
            return reply
        done: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        done.set_result(reply)
        return done


async def rebalanced(clients: Clients, joins: list[dict[str, Any]]) -> list[Any]:
    """Everybody has joined, and has its part."""
    joined = await clients.ask(ApiKey.JOIN_GROUP, 3, joins)
    assert {int(one.error_code) for one in joined} == {0}
    syncs = [
        sync_of(
            one,
            assignments=[
                {"member_id": str(each.member_id), "assignment": b"its part"}
                for each in one.members
            ],
        )
        for one in joined
    ]
    synced = await clients.ask(ApiKey.SYNC_GROUP, 3, syncs)
    assert {bytes(one.assignment) for one in synced} == {b"its part"}
    return joined


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_thousand_members_never_hold_the_loop(members: Members) -> None:
    leader = coordinator(members)
    shard = leader.shard
    clients = Clients(leader)
    with nothing_holds_the_loop():
        first = [join_of(session_timeout=60_000) for _ in range(MANY)]
        joined = await rebalanced(clients, first)
        again = [join_of(member_id=str(one.member_id), session_timeout=60_000) for one in joined]
        joined = await rebalanced(clients, again)
        beats = await clients.ask(ApiKey.HEARTBEAT, 3, [member_of(one) for one in joined])
        assert {int(one.error_code) for one in beats} == {0}
        assert len(shard.soft.classic["g"].members) == MANY
        leavers = [leave_of({"member_id": str(one.member_id)}) for one in joined]
        left = await clients.ask(ApiKey.LEAVE_GROUP, 2, leavers)
        assert {int(one.error_code) for one in left} == {0}
    assert shard.soft.classic == {}


# --- replies -------------------------------------------------------------------------------------


class Shard:
    """What a reply asks of its shard; `holds`: it has its lease."""

    def __init__(self) -> None:
        self.holds = True

    def may_tell(self) -> bool:
        return self.holds


def answered(askers: list[Asker]) -> int:
    return sum(asker.answered for asker in askers)


async def test_many_replies_leave_in_slices_under_lease() -> None:
    for written in (True, False):
        shard, askers = Shard(), [Asker() for _ in range(3 * ANSWERED_AT_ONCE)]
        thens: list[Code] = []
        replies = tuple(CoordinatorReply(asker, "told") for asker in askers)
        waiting = WaitingReplies(shard, replies, thens.append, written=written)
        waiting.answer(Code.NONE)
        assert (answered(askers), thens) == (ANSWERED_AT_ONCE, [Code.NONE])
        shard.holds = False
        for turn in (2, 3, 3):
            await asyncio.sleep(0)
            assert answered(askers) == turn * ANSWERED_AT_ONCE
        last = "told" if written else RefusedAsWhole(Code.NOT_COORDINATOR)
        assert [asker.answer_value for asker in askers[::ANSWERED_AT_ONCE]] == ["told", last, last]


async def test_many_groups_are_listed_in_portions(
    members: Members, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All groups of all shards were gone through in one call: 40,000 held the loop for 67 ms."""
    leader = coordinator(members)
    groups = leader.shard.state.groups
    names = [f"group-{number:05}" for number in range(40_000)]
    groups.update((name, Group(name)) for name in names)
    portions: list[int] = []
    ask = GroupShard.ask

    def asked(shard: GroupShard, op: Any) -> Asker:
        portions.append(len(op.group_ids or groups))
        return ask(shard, op)

    monkeypatch.setattr(GroupShard, "ask", asked)
    values = {"states_filter": [], "types_filter": []}
    clients = Clients(leader)
    waiting = asyncio.ensure_future(clients.ask(ApiKey.LIST_GROUPS, 5, [values]))
    await asyncio.sleep(0)
    assert len(portions) <= ASKED_AT_ONCE, "others have their turn"
    (reply,) = await waiting
    assert sorted(one.group_id for one in reply.groups) == names
    assert max(portions) <= GROUPS_AT_ONCE
    first = ASKED_AT_ONCE * GROUPS_AT_ONCE
    assert sum(portions) == len(names) + first, "those are asked again once there is room for all"
