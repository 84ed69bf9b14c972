"""OffsetFetch: what a group has committed.

Called by `groups.step`.  An offset of a topic that was deleted and made again is not the new
topic's.  Source: KIP-447, KIP-709; docs/protocol.md §5.8.
"""

from __future__ import annotations

from uuid import UUID

from plimsoll_core.coordination.outcome import CoordinatorOutcome, Reply, refuse
from plimsoll_core.errors import Code
from plimsoll_core.groups.operations import (
    AllOffsetsFetched,
    FetchAllOffsets,
    FetchedOffset,
    FetchOffsets,
    OffsetsFetched,
    Operation,
    fetched,
)
from plimsoll_core.groups.records import GroupRecord
from plimsoll_core.groups.state import CommittedOffset
from plimsoll_core.groups.turn import GroupTurn

_DOUBTFUL = (
    "A topic of this group may have been deleted; until the newest metadata are here nobody can "
    "tell whether its offsets still count."
)


def fetch_offsets(
    turn: GroupTurn, op: FetchOffsets, token: object
) -> CoordinatorOutcome[GroupRecord, Operation]:
    """Unknown groups and partitions have no offset, which is no error."""
    group = turn.state.groups.get(op.group_id)
    held = {} if group is None else group.offsets
    found: list[FetchedOffset] = []
    for topic, partition in op.partitions:
        committed = held.get(topic, {}).get(partition)
        if committed is None:
            found.append(FetchedOffset(topic, partition))
        elif _is_of(committed, turn.image.topic_ids.get(topic)):
            found.append(fetched(topic, partition, committed))
        elif turn.image_is_fresh:
            found.append(FetchedOffset(topic, partition))
        else:
            return refuse(op.group_id, token, Code.COORDINATOR_LOAD_IN_PROGRESS, _DOUBTFUL)
    answer = OffsetsFetched(tuple(found))
    return CoordinatorOutcome(key=op.group_id, replies=(Reply(token, answer),))


def fetch_all_offsets(
    turn: GroupTurn, op: FetchAllOffsets, token: object
) -> CoordinatorOutcome[GroupRecord, Operation]:
    """However many there are, it takes a moment: they are copied, not gone through one by one."""
    group = turn.state.groups.get(op.group_id)
    topics: dict[str, dict[int, CommittedOffset]] = {}
    for topic, held in {} if group is None else group.offsets.items():
        topic_id = turn.image.topic_ids.get(topic)
        # A topic's offsets share one value of their topic's id, or few.
        ids = {id(one.topic_id): one for one in held.values()}
        if all(_is_of(one, topic_id) for one in ids.values()):
            topics[topic] = held.copy()
        elif turn.image_is_fresh:
            topics[topic] = {at: one for at, one in held.items() if _is_of(one, topic_id)}
        else:
            return refuse(op.group_id, token, Code.COORDINATOR_LOAD_IN_PROGRESS, _DOUBTFUL)
    return CoordinatorOutcome(key=op.group_id, replies=(Reply(token, AllOffsetsFetched(topics)),))


def _is_of(committed: CommittedOffset, topic_id: UUID | None) -> bool:
    """Whether the topic that has its name now, if any, is the one that was consumed."""
    return committed.topic_id is None or committed.topic_id == topic_id
