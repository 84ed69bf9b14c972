"""AddOffsetsToTxn: makes the partition of `__consumer_offsets` that holds a group part of a
producer's transaction.

It goes to the transaction's coordinator, before the offsets go to the group's (TxnOffsetCommit).
Source: KIP-98; docs/protocol.md §4.14.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from plimsoll_broker.coordinator.transaction_coordinators import TransactionCoordinators
from plimsoll_broker.handlers.long_work import Aside
from plimsoll_broker.handlers.transactions.transaction_api import (
    TransactionApi,
    TransactionHandler,
    TransactionRequest,
    code_for,
)
from plimsoll_broker.server.dispatch import Handler, RequestContext, Result
from plimsoll_core.cluster.model import ClusterImage
from plimsoll_core.cluster.topic_names import GROUP_OFFSETS
from plimsoll_core.coordination.hashing import partition_of
from plimsoll_core.errors import Code
from plimsoll_core.groups.checks import check_group_id
from plimsoll_core.ids import ProducerLife, TopicPartition
from plimsoll_core.transactions.operations import AddToTransaction

_FENCED_VERSION = 2


def _partition(image: ClusterImage, group_id: str) -> TopicPartition | Code:
    """Return the partition that holds the group, or the error."""
    refusal = check_group_id(group_id)
    if refusal is not None:
        return refusal.code
    topic_id = image.topic_ids.get(GROUP_OFFSETS)
    partitions = 0 if topic_id is None else image.topics[topic_id].partitions
    if not partitions:
        return Code.COORDINATOR_NOT_AVAILABLE
    return TopicPartition(GROUP_OFFSETS, partition_of(group_id, partitions))


def _operations(request: TransactionRequest) -> Iterator[AddToTransaction]:
    value = request.value
    partition = _partition(request.image, value.group_id)
    if isinstance(partition, TopicPartition):
        yield AddToTransaction(
            transactional_id=value.transactional_id,
            producer=ProducerLife(value.producer_id, value.producer_epoch),
            partitions=(partition,),
        )


def _values(request: TransactionRequest, answers: list[object]) -> dict[str, Any]:
    if answers:
        return {"error_code": code_for(answers[0], request.version, _FENCED_VERSION)}
    return {"error_code": _partition(request.image, request.value.group_id)}


_ADD_OFFSETS = TransactionApi(_operations, _values)


def add_offsets(coordinators: TransactionCoordinators, aside: Aside) -> Handler:
    """Return the handler of AddOffsetsToTxn. It has `__consumer_offsets` created if it is missing;
    the producer tries again."""
    handler = TransactionHandler(_ADD_OFFSETS, coordinators, aside)

    def handle(context: RequestContext) -> Result:
        image = coordinators.manager.image
        if image is not None and GROUP_OFFSETS not in image.topic_ids:
            coordinators.topics.want(GROUP_OFFSETS)
        return handler(context)

    return handle
