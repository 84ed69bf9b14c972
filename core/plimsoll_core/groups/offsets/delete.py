"""Deletes committed offsets: by request, with their topics, and by age.

Called by `groups.step`.  Offsets of a topic to which a member is subscribed are neither deleted nor
expired.  Only subscriptions of the consumer protocol can be read; all of them begin with their
topics.  If one cannot be read, or there are too many to go through, every topic counts as
subscribed.  An expiry runs when a group's deadline is due; a group without members and offsets is
removed then.  Nothing is removed by age while the wall clock is not trusted.
While an open transaction has a pending offset of a partition, the committed offset of that
partition stays, and so does the group: a tombstone would take the pending offset out of its
transaction.
Sources: KIP-496, KIP-186, KIP-211; Kafka's `ClassicGroup.computeSubscribedTopics`;
docs/protocol.md §5.8.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from itertools import islice

from plimsoll_core.coordination.outcome import CoordinatorOutcome, Reply, refuse
from plimsoll_core.errors import Code
from plimsoll_core.groups.checks import no_such_group
from plimsoll_core.groups.classic.seats import find, is_empty, let_go_of
from plimsoll_core.groups.classic_group import ClassicGroup, Empty, Preparing, Stable
from plimsoll_core.groups.operations import (
    DeleteOffsets,
    ExpireOffsets,
    ForgetTopics,
    OffsetsCommitted,
    Operation,
    PartitionCode,
)
from plimsoll_core.groups.records import (
    GroupForgotten,
    GroupRecord,
    GroupStored,
    OffsetForgotten,
)
from plimsoll_core.groups.state import Group
from plimsoll_core.groups.turn import ExpiryDue, GroupTurn

CONSUMER = "consumer"
"""The only protocol type with subscriptions that can be read."""
NAMES_MAX = 20_000
"""The most topics in all subscriptions of a group, so that reading them takes a few
milliseconds."""

_HEAD = struct.Struct(">hi")
_LENGTH = struct.Struct(">h")


def subscribed_topics(
    group: ClassicGroup | None, stored: GroupStored | None
) -> frozenset[str] | None:
    """Return the names of the topics that members are subscribed to, none for a group without
    members; None if every topic counts as subscribed. While members join again, the stored
    generation's topics count too: members may still consume them."""
    if group is None or isinstance(group.phase, Empty):
        return frozenset()
    if group.protocol_type != CONSUMER or group.protocol is None:
        return None
    subscriptions = [one.subscription(group.protocol) for one in group.members.values()]
    if isinstance(group.phase, Preparing) and stored is not None:
        subscriptions += [one.subscription for one in stored.members]
    return _topics(subscriptions)


def _topics(subscriptions: Iterable[bytes]) -> frozenset[str] | None:
    names: set[bytes] = set()
    gone_through = 0
    last = b""
    for subscription in subscriptions:
        if last and subscription.startswith(last):
            continue  # members of one application say the same
        found = _names(subscription, NAMES_MAX - gone_through)
        if found is None:
            return None
        some, end = found
        names.update(some)
        gone_through += len(some)
        last = subscription[:end]
    try:
        return frozenset(str(name, "utf-8") for name in names)
    except UnicodeDecodeError:
        return None


def _names(subscription: bytes, at_most: int) -> tuple[list[bytes], int] | None:
    """Return the topic names in a consumer's subscription and the position behind them. Return None
    if the subscription cannot be parsed, or names more than `at_most` topics."""
    if len(subscription) < _HEAD.size:
        return None
    _, count = _HEAD.unpack_from(subscription)
    if not 0 <= count <= min(at_most, len(subscription) // _LENGTH.size):
        return None
    names: list[bytes] = []
    position = _HEAD.size
    for _ in range(count):
        start = position + _LENGTH.size
        if start > len(subscription):
            return None
        (length,) = _LENGTH.unpack_from(subscription, position)
        position = start + length
        if length < 0 or position > len(subscription):
            return None
        names.append(subscription[start:position])
    return names, position


RECORDS_AT_ONCE = 500
"""The most tombstones of one operation. `ForgetTopics` is submitted again for the rest, and an
expiry is due again a moment later."""


def delete_offsets(
    turn: GroupTurn, op: DeleteOffsets, token: object
) -> CoordinatorOutcome[GroupRecord, Operation]:
    """Delete the requested offsets, except of topics that a member is subscribed to and of
    partitions in an open transaction, and answer with a code for each. Refuse the request if the
    group does not exist, or has members with another protocol type than the consumers'."""
    group, members = turn.state.groups.get(op.group_id), find(turn, op.group_id)
    if group is None:
        return no_such_group(op.group_id, token)
    empty = is_empty(turn, op.group_id)
    if not empty and members is not None and members.protocol_type != CONSUMER:
        message = (
            f"Group {op.group_id} has members. Stop its consumers first, then repeat the request."
        )
        return refuse(op.group_id, token, Code.NON_EMPTY_GROUP, message)
    subscribed = subscribed_topics(members, group.stored)
    codes: list[PartitionCode] = []
    records: dict[tuple[str, int], GroupRecord] = {}
    for topic, index in op.partitions:
        code = Code.NONE
        if subscribed is None or topic in subscribed:
            code = Code.GROUP_SUBSCRIBED_TO_TOPIC
        elif group.is_pending(topic, index):
            code = Code.UNSTABLE_OFFSET_COMMIT
        elif index in group.offsets.get(topic, {}):
            tombstone = OffsetForgotten(group_id=op.group_id, topic=topic, partition=index)
            records[topic, index] = tombstone
        elif not turn.has_partition(topic, index):
            code = Code.UNKNOWN_TOPIC_OR_PARTITION
        codes.append(PartitionCode(topic, index, code))
    replies = (Reply(token, OffsetsCommitted(tuple(codes))),)
    return CoordinatorOutcome(key=op.group_id, records=tuple(records.values()), replies=replies)


def forget_topics(
    turn: GroupTurn, op: ForgetTopics, token: object
) -> CoordinatorOutcome[GroupRecord, Operation]:
    """Delete a group's offsets of topics that were deleted, at most `RECORDS_AT_ONCE`, so that a
    later topic of the same name does not start from them. The shard asks again after a transaction
    that holds any of them has ended."""
    group = turn.state.groups.get(op.group_id)
    held = {} if group is None else group.offsets
    gone = (
        OffsetForgotten(group_id=op.group_id, topic=topic, partition=index)
        for topic, partitions in held.items()
        for index, committed in partitions.items()
        if committed.topic_id in op.topic_ids
        if group is not None and not group.is_pending(topic, index)
    )
    return CoordinatorOutcome(key=op.group_id, records=tuple(islice(gone, RECORDS_AT_ONCE)))


SOON_MS = 100


_NEVER = -1


def expire_offsets(
    turn: GroupTurn, op: ExpireOffsets, token: object
) -> CoordinatorOutcome[GroupRecord, Operation]:
    """Delete offsets that are too old, at most `RECORDS_AT_ONCE`, and the group's own record if no
    offset and no member is left. Schedule the next check: after `SOON_MS` if more may be too old.
    If the log has no such group, schedule none."""
    group = turn.state.groups.get(op.group_id)
    if group is None:
        let_go_of(turn, op.group_id)
        return CoordinatorOutcome(key=op.group_id)
    records: list[GroupRecord] = [
        OffsetForgotten(group_id=op.group_id, topic=topic, partition=index)
        for topic, index in islice(_expired(turn, group), RECORDS_AT_ONCE)
    ]
    full = len(records) == RECORDS_AT_ONCE
    none_left = len(records) == sum(map(len, group.offsets.values()))
    known = turn.believed_ms is not None and group.stored is not None
    if none_left and known and group.pending is None and is_empty(turn, op.group_id):
        records.append(GroupForgotten(group_id=op.group_id))
    wait_ms = SOON_MS if full else turn.settings.retention_check_ms
    turn.soft.deadlines.set(ExpiryDue(op.group_id), turn.now_ms + wait_ms)
    return CoordinatorOutcome(key=op.group_id, records=tuple(records))


def _expired(turn: GroupTurn, group: Group) -> Iterator[tuple[str, int]]:
    """Yield the topic and partition of each offset that is too old; nothing if the wall clock is
    not trusted. Values that hold for the whole group are computed once, since a group may have very
    many offsets."""
    now_ms = turn.believed_ms
    if now_ms is None:
        return
    members = find(turn, group.group_id)
    subscribed = _in_use(members, group.stored)
    if subscribed is None:
        return
    last_ms = _last_commit_ms(turn, group, now_ms, alone=is_empty(turn, group.group_id))
    for topic, partitions in group.offsets.items():
        if topic in subscribed:
            continue
        for index, committed in partitions.items():
            if group.is_pending(topic, index):
                continue
            expire_ms = committed.expire_ms
            if committed.commit_ms <= last_ms if expire_ms is None else expire_ms <= now_ms:
                yield topic, index


def _in_use(members: ClassicGroup | None, stored: GroupStored | None) -> frozenset[str] | None:
    """Return the names of the topics with offsets that do not expire. Return None, for all topics,
    during a rebalance, when it is unknown what members consume, and while the log still shows the
    members of a group that has become empty: `stored.state_ms` does not tell since when it is."""
    if members is not None and isinstance(members.phase, Empty):
        if stored is not None and stored.members:
            return None
    elif members is not None and not isinstance(members.phase, Stable):
        return None
    return subscribed_topics(members, stored)


def _last_commit_ms(turn: GroupTurn, group: Group, now_ms: int, *, alone: bool) -> int:
    """Return the wall clock time in ms at or before which a commit must have been made to be
    expired now, unless the commit states its own retention; `_NEVER` if none is. The offsets of a
    group that had members expire only after the group has been empty for the retention time, too.
    `alone`: True if the group has no members now."""
    last_ms = now_ms - turn.settings.retention_ms
    emptied_ms = group.stored.state_ms if alone and group.stored is not None else _NEVER
    return last_ms if emptied_ms <= last_ms else _NEVER
