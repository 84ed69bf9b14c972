"""Topics that a group is subscribed to: whose offsets are neither deleted nor expire."""

import struct

import pytest
from tests.plimsoll_core.groups.classic_members import (
    a_heartbeat,
    a_join,
    a_sync,
    begins,
    given,
    leave,
    phase,
    stable,
)
from tests.plimsoll_core.groups.coordinator_model import (
    CoordinatorModel,
    a_commit,
    codes,
    fetched,
)

from plimsoll_core.errors import Code
from plimsoll_core.groups import operations as o
from plimsoll_core.groups.offsets import delete
from plimsoll_core.groups.offsets.delete import NAMES_MAX, subscribed_topics

WEEK_MS = 7 * 24 * 3_600_000
DELETE = o.DeleteOffsets(group_id="g", partitions=(("orders", 0), ("bills", 0), ("orders", 0)))


def subscription(*topics: str, version: int = 3) -> bytes:
    """As a consumer of that version says it: fields that later versions added stand behind."""
    names = b"".join(struct.pack(">h", len(name)) + name.encode() for name in topics)
    return struct.pack(">hi", version, len(topics)) + names + b"\xff\xff\xff\xff" + b"later fields"


def to(*topics: str, version: int = 3) -> tuple[tuple[str, bytes], ...]:
    return (("range", subscription(*topics, version=version)),)


def consumers(model: CoordinatorModel, *said: bytes, protocol_type: str = "consumer") -> list[str]:
    """A stable group whose members said this."""
    ids = [given(model) for _ in said]
    tokens = [
        model.asked(a_join(one, protocols=(("range", each),), protocol_type=protocol_type))
        for one, each in zip(ids, said, strict=True)
    ]
    while model.answer(tokens[0]) is None:
        model.advance(3_000)
    for token in reversed(tokens):  # the leader's comes last
        joined = model.answer(token)
        model.asked(a_sync(joined))  # type: ignore[arg-type]
    assert phase(model) == "Stable"
    return ids


def commit(model: CoordinatorModel) -> None:
    """Before there are members."""
    model.ask(a_commit(("orders", 0, 10), ("bills", 0, 11)))


@pytest.mark.parametrize("version", range(4))
def test_offset_deletion_skips_subscribed_topics(model: CoordinatorModel, version: int) -> None:
    commit(model)
    consumers(model, subscription("orders", version=version), subscription("x", version=version))
    assert codes(model.ask(DELETE)) == [86, 0, 86]
    assert fetched(model, ("orders", 0), ("bills", 0)) == [10, -1]
    model.fail_over()
    assert codes(model.ask(DELETE)) == [86, 0, 86]


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"\0",
        b"\0\3\0\0\0\1",
        b"\0\3\xff\xff\xff\xff",
        b"\0\3\x7f\xff\xff\xff",
        b"\0\3\0\0\0\1\xff\xff",
        b"\0\3\0\0\0\1\x7f\xfforders",
        b"\0\3\0\0\0\1\0\2\xff\xfe",
        struct.pack(">hi", 3, NAMES_MAX + 1) + b"\0\0" * (NAMES_MAX + 1),
    ],
    ids=repr,
)
def test_group_with_unreadable_subscription_counts_as_subscribed(
    model: CoordinatorModel, said: bytes
) -> None:
    commit(model)
    consumers(model, subscription("orders"), said)
    assert codes(model.ask(DELETE)) == [86] * 3
    assert subscribed_topics(model.turn.soft.classic["g"], None) is None


def test_group_of_other_protocol_keeps_all_offsets(
    model: CoordinatorModel,
) -> None:
    commit(model)
    ids = consumers(model, subscription("orders"), protocol_type="connect")
    assert model.ask(DELETE) is Code.NON_EMPTY_GROUP
    model.ask(leave((ids[0], None)))
    assert codes(model.ask(DELETE)) == [0, 0, 0]


def test_topics_stay_subscribed_until_members_rejoin(
    model: CoordinatorModel,
) -> None:
    commit(model)
    first, second = consumers(model, subscription("bills", "orders"), subscription("bills"))
    model.asked(a_join(first, protocols=to("bills")))
    assert phase(model) == "Preparing"
    assert codes(model.ask(DELETE)) == [86] * 3, "it may still consume orders"
    model.asked(a_join(second, protocols=to("bills")))
    assert phase(model) == "Completing"
    assert codes(model.ask(DELETE)) == [0, 86, 0]


def test_group_without_generation_counts_as_subscribed(
    model: CoordinatorModel,
) -> None:
    commit(model)
    model.asked(a_join(given(model), protocols=to("bills")))
    assert codes(model.ask(DELETE)) == [86] * 3


def test_offset_deletion_of_unknown_partition_reports_it(
    model: CoordinatorModel,
) -> None:
    commit(model)
    op = o.DeleteOffsets(group_id="g", partitions=(("none", 0), ("bills", 7), ("bills", 0)))
    assert codes(model.ask(op)) == [3, 3, 0]


def test_empty_group_id_has_no_deletable_offsets(
    model: CoordinatorModel,
) -> None:
    assert model.ask(o.DeleteOffsets(group_id="", partitions=())) is Code.INVALID_GROUP_ID


# --- expiry --------------------------------------------------------------------------------------


def test_unsubscribed_offset_expires_in_stable_group(
    model: CoordinatorModel,
) -> None:
    commit(model)
    first, second = consumers(model, subscription("orders"), subscription("orders"))
    live_on(model, first, second, WEEK_MS - 3_600_000)
    assert fetched(model, ("orders", 0), ("bills", 0)) == [10, 11]
    live_on(model, first, second, 2 * 3_600_000)
    assert fetched(model, ("orders", 0), ("bills", 0)) == [10, -1]


def test_offsets_do_not_expire_during_rebalance(
    model: CoordinatorModel,
) -> None:
    model.ask(a_commit(("orders", 0, 10), ("bills", 0, 11), retention_ms=1_000))
    members = begins(model, "s1", "s2")  # Completing: nobody has an assignment
    model.advance(5_000)
    model.submit(o.ExpireOffsets(group_id="g"), None)
    assert fetched(model, ("orders", 0), ("bills", 0)) == [10, 11]
    assert len(members) == 2
    other = CoordinatorModel(model.turn.image)
    other.ask(a_commit(("orders", 0, 10), retention_ms=1_000))
    stable(other, None)
    other.advance(5_000)
    other.submit(o.ExpireOffsets(group_id="g"), None)
    assert fetched(other, ("orders", 0)) == [10], "its subscription cannot be read"


def live_on(model: CoordinatorModel, first: str, second: str, ms: int) -> None:
    """The members' sessions last, as if they had sent heartbeats."""
    for member in model.turn.soft.classic["g"].members.values():
        member.session_timeout_ms = 2 * WEEK_MS
    generation = model.turn.soft.classic["g"].generation
    for one in (first, second):
        model.ask(a_heartbeat(one, generation))
    model.advance(ms)


# --- hostile sizes -------------------------------------------------------------------------------


def test_subscription_names_examined_are_bounded(
    model: CoordinatorModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, plain = [0], delete._names

    def counted(subscription: bytes, at_most: int) -> tuple[list[bytes], int] | None:
        found = plain(subscription, at_most)
        read[0] += 0 if found is None else len(found[0])
        return found

    monkeypatch.setattr(delete, "_names", counted)
    commit(model)
    consumers(model, subscription("orders"))
    group = model.turn.soft.classic["g"]
    (member,) = group.members.values()
    same = subscription(*(f"topic-{number}" for number in range(1_000)))
    for number in range(2_000):
        other = type(member)(f"m{number}", None)
        other.protocols = (("range", same + b"%d" % number),)
        group.add(other)
    read[0] = 0
    found = subscribed_topics(group, None)
    assert found is not None
    assert len(found) == 1_001
    assert read[0] == 1_001, "members of one application say the same"
    for number, other in enumerate(group.members.values()):
        group.tell(other, (("range", subscription(*(f"{number}-{i}" for i in range(300)))),))
    read[0] = 0
    assert subscribed_topics(group, None) is None, "too many to be gone through"
    assert 0 < read[0] <= NAMES_MAX
