"""TxnOffsetCommit: adds a group's offsets to a producer's transaction.

It goes to the group's coordinator, as OffsetCommit does. Before a transaction's first offsets in a
partition of `__consumer_offsets` the transaction's coordinator is asked whether the partition is
part of it (AddOffsetsToTxn), as before a first batch anywhere. The connection's later requests of
groups wait behind that. Sources: KIP-98, KIP-447 (members), KIP-890; docs/protocol.md §4.14.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import chain
from typing import Any

from plimsoll_broker.coordinator.coordinators import Coordinators
from plimsoll_broker.handlers.groups.group_api import (
    Awaited,
    GroupApi,
    GroupRequest,
    by_topic,
    codes_of,
    portions,
)
from plimsoll_core.errors import Code
from plimsoll_core.groups.memory import PRINCIPAL_MAX
from plimsoll_core.groups.operations import CommitOffsets, PartitionOffset
from plimsoll_core.ids import ProducerLife
from plimsoll_core.security.acl import AclOperation

_LOADING_VERSION = 2
"""The version from which on producers know COORDINATOR_LOAD_IN_PROGRESS."""


def _producer(request: GroupRequest) -> ProducerLife:
    return ProducerLife(request.value.producer_id, request.value.producer_epoch)


def _offsets(request: GroupRequest) -> Iterator[PartitionOffset]:
    for topic in request.value.topics:
        if topic.name not in request.refused:
            for one in topic.partitions:
                yield PartitionOffset(
                    topic.name,
                    one.partition_index,
                    one.committed_offset,
                    getattr(one, "committed_leader_epoch", -1),
                    one.committed_metadata or "",
                )


def _operations(request: GroupRequest) -> Iterator[CommitOffsets]:
    asked = request.value
    for portion in portions(_offsets(request)):
        yield CommitOffsets(
            group_id=asked.group_id,
            member_id=getattr(asked, "member_id", ""),
            group_instance_id=getattr(asked, "group_instance_id", None),
            generation=getattr(asked, "generation_id", -1),
            offsets=portion,
            principal=request.context.connection.holder[:PRINCIPAL_MAX],
            producer=_producer(request),
        )


def _values(request: GroupRequest, answers: list[object]) -> dict[str, Any]:
    codes = (
        code
        for portion, answer in zip(portions(_offsets(request)), answers, strict=True)
        for code in codes_of(len(portion), answer)
    )
    rows = (
        (one.topic, {"partition_index": one.partition, "error_code": _known(request, code)})
        for one, code in zip(_offsets(request), codes, strict=True)
    )
    denied = (
        (
            topic.name,
            {"partition_index": one.partition_index, "error_code": request.topic_code},
        )
        for topic in request.value.topics
        if topic.name in request.refused
        for one in topic.partitions
    )
    return {"topics": by_topic(chain(rows, denied))}


def _known(request: GroupRequest, code: Code) -> Code:
    if code is Code.COORDINATOR_LOAD_IN_PROGRESS and request.version < _LOADING_VERSION:
        return Code.COORDINATOR_NOT_AVAILABLE
    return code


def _topics(value: Any) -> Iterator[str]:
    return (topic.name for topic in value.topics)


def _unverified(coordinators: Coordinators, request: GroupRequest) -> Awaited | None:
    """Return the verification that the request needs before it is decided; None if it needs none,
    or if it will be refused anyway."""
    group_id, transactions = request.value.group_id, coordinators.transactions
    if request.group_refused or transactions is None:
        return None
    if coordinators.may_transact(group_id, _producer(request)):
        return None
    name = request.value.transactional_id
    return partial(coordinators.verify, transactions.verifier, name, group_id, _producer(request))


TXN_OFFSET_COMMIT = GroupApi(
    _operations, _values, AclOperation.READ, _topics, writes=True, waits_for=_unverified
)
