"""Members of classic groups for the tests of the rules: requests with what matters."""

from itertools import count
from typing import Any

from tests.plimsoll_core.groups.coordinator_model import CoordinatorModel

from plimsoll_core.groups import membership as m
from plimsoll_core.groups.records import GroupStored

_NUMBERS = count()
SESSION_MS = 10_000
REBALANCE_MS = 30_000
RANGE = (("range", b"topics"),)


def a_join(member_id: str = "", instance: str | None = None, **more: Any) -> m.JoinGroup:
    """As a client of version 9 sends it."""
    values: dict[str, Any] = {
        "group_id": "g",
        "member_id": member_id,
        "group_instance_id": instance,
        "new_member_id": f"{instance or 'c'}-{next(_NUMBERS)}",
        "client_id": "c",
        "client_host": "/127.0.0.1",
        "session_timeout_ms": SESSION_MS,
        "rebalance_timeout_ms": REBALANCE_MS,
        "protocol_type": "consumer",
        "protocols": RANGE,
        **more,
    }
    return m.JoinGroup(**values)


def a_sync(joined: m.GroupJoined, **parts: bytes) -> m.SyncGroup:
    """`parts`: the leader's assignments, ids with underscores for dashes."""
    return m.SyncGroup(
        group_id="g",
        member_id=joined.member_id,
        generation=joined.generation,
        protocol_type=joined.protocol_type,
        protocol=joined.protocol,
        assignments=tuple((member.replace("_", "-"), part) for member, part in parts.items()),
    )


def a_heartbeat(member_id: str, generation: int, instance: str | None = None) -> m.MemberHeartbeat:
    return m.MemberHeartbeat(
        group_id="g", member_id=member_id, generation=generation, group_instance_id=instance
    )


def leave(*members: tuple[str, str | None]) -> m.LeaveGroup:
    return m.LeaveGroup(group_id="g", members=tuple(m.Leaver(*one) for one in members))


def stored(model: CoordinatorModel) -> GroupStored:
    """The generation that was written last."""
    record = model.log[-1]
    assert isinstance(record, GroupStored)
    return record


def given(model: CoordinatorModel) -> str:
    """An id that the group gave out."""
    answer = model.ask(a_join())
    assert isinstance(answer, m.MemberIdGiven)
    return answer.member_id


def begins(model: CoordinatorModel, *instances: str | None) -> list[m.GroupJoined]:
    """A group of so many members, None being dynamic ones, that know their generation."""
    tokens = []
    for instance in instances:
        op = a_join(given(model)) if instance is None else a_join(instance=instance)
        tokens.append(model.asked(op))
    while model.answer(tokens[0]) is None:
        model.advance(3_000)
    return [joined_by(model, token) for token in tokens]


def joined_by(model: CoordinatorModel, token: object) -> m.GroupJoined:
    answer = model.answer(token)
    assert isinstance(answer, m.GroupJoined), answer
    return answer


def stable(model: CoordinatorModel, *instances: str | None) -> list[m.GroupJoined]:
    """The same, and each has its assignment: its own id."""
    all_joined = begins(model, *instances)
    leader = all_joined[0].leader
    parts = {one.member_id: one.member_id.encode() for one in all_joined}
    tokens = [
        model.asked(a_sync(one, **(parts if one.member_id == leader else {}))) for one in all_joined
    ]
    for one, token in zip(all_joined, tokens, strict=True):
        answer = model.answer(token)
        assert answer == m.GroupSynced("consumer", "range", one.member_id.encode()), answer
    return all_joined


def phase(model: CoordinatorModel) -> str:
    group = model.turn.soft.classic.get("g")
    return "none" if group is None else type(group.phase).__name__


def alive(model: CoordinatorModel, *members: m.GroupJoined) -> list[object]:
    """Each one's heartbeat, answered."""
    return [model.ask(a_heartbeat(one.member_id, one.generation)) for one in members]
