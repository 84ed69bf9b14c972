"""OffsetFetch: what a group has committed.

Called by `groups.step`.  An offset of a topic that was deleted and made again is not the new
topic's.  Source: KIP-447, KIP-709; docs/protocol.md §5.8.
"""

from __future__ import annotations

from plimsoll_core.coordination.outcome import CoordinatorOutcome, RefusedAsWhole, Reply
from plimsoll_core.errors import Code
from plimsoll_core.groups.operations import (
    FetchedOffset,
    FetchOffsets,
    OffsetsFetched,
    Operation,
)
from plimsoll_core.groups.records import GroupRecord
from plimsoll_core.groups.state import CommittedOffset, Group
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
    asked = _all(group) if op.partitions is None else op.partitions
    found: list[FetchedOffset] = []
    for topic, partition in asked:
        committed = None if group is None else group.offsets.get(topic, {}).get(partition)
        if committed is not None and _is_of_another_topic(turn, topic, committed):
            if not turn.image_is_fresh:
                doubt = RefusedAsWhole(Code.COORDINATOR_LOAD_IN_PROGRESS, _DOUBTFUL)
                return CoordinatorOutcome(key=op.group_id, replies=(Reply(token, doubt),))
            committed = None
        if committed is not None:
            found.append(
                FetchedOffset(
                    topic,
                    partition,
                    committed.offset,
                    committed.leader_epoch,
                    committed.metadata,
                )
            )
        elif op.partitions is not None:
            found.append(FetchedOffset(topic, partition))
    return CoordinatorOutcome(
        key=op.group_id, replies=(Reply(token, OffsetsFetched(tuple(found))),)
    )


def _all(group: Group | None) -> tuple[tuple[str, int], ...]:
    if group is None:
        return ()
    return tuple((topic, index) for topic, held in group.offsets.items() for index in held)


def _is_of_another_topic(turn: GroupTurn, topic: str, committed: CommittedOffset) -> bool:
    """Whether the topic that has this name now, if any, is not the one that was consumed."""
    return committed.topic_id is not None and turn.image.topic_ids.get(topic) != committed.topic_id
