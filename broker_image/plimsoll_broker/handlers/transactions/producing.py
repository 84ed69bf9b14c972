"""The APIs of a transaction: AddPartitionsToTxn, EndTxn, and WriteTxnMarkers between brokers.

`AddPartitionsToTxn`: up to version 3 a producer adds partitions to its transaction; all of them or
none. From version 4 on a broker asks for many transactions at once; here only whether partitions
are part of them (KIP-890). `EndTxn`: commits or aborts. `WriteTxnMarkers`: a coordinator has the
leaders of a transaction's partitions append its end markers. Source: KIP-98.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from plimsoll_broker.coordinator.hanging_transactions import fate_codes
from plimsoll_broker.coordinator.verifier import verified
from plimsoll_broker.handlers.long_work import in_turns
from plimsoll_broker.handlers.transactions.transaction_api import (
    TransactionApi,
    TransactionRequest,
    code_for,
)
from plimsoll_broker.replication.replica_manager import ReplicaManager
from plimsoll_broker.replication.transactional_appends import MarkerWriter, PartitionMarker
from plimsoll_broker.server.dispatch import Handler, Reply, RequestContext
from plimsoll_core.cluster.topic_names import INTERNAL_TOPICS
from plimsoll_core.errors import Code
from plimsoll_core.ids import ProducerLife, TopicPartition
from plimsoll_core.transactions.operations import (
    AddToTransaction,
    EndTransaction,
    TellFates,
    VerifyPartitions,
)
from plimsoll_wire.control_records import EndMarker
from plimsoll_wire.messages import encode_response

_FENCED_VERSION = 2
_BROKERS_VERSION = 4
"""The version from which on AddPartitionsToTxn is sent by brokers only."""
Topics = dict[str, dict[int, Code]]


def _partitions(topics: Any) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition(one.name, index) for one in topics for index in one.partitions)


def _unknown(request: TransactionRequest) -> dict[TopicPartition, Code]:
    """Return the errors of the partitions that a producer cannot add."""
    image, found = request.image, {}
    for one in _partitions(request.value.v3_and_below_topics):
        if image.partition_named(*one) is None:
            found[one] = Code.UNKNOWN_TOPIC_OR_PARTITION
        elif one.topic in INTERNAL_TOPICS:
            found[one] = Code.INVALID_TOPIC_EXCEPTION
    return found


def _add_operations(
    request: TransactionRequest,
) -> Iterator[AddToTransaction | VerifyPartitions | TellFates]:
    value = request.value
    if request.version >= _BROKERS_VERSION:
        for one in value.transactions:
            producer = ProducerLife(one.producer_id, one.producer_epoch)
            partitions = _partitions(one.topics)
            if one.transactional_id:
                yield VerifyPartitions(
                    transactional_id=one.transactional_id, producer=producer, partitions=partitions
                )
            else:
                yield TellFates(producer=producer, partitions=partitions)
    elif not _unknown(request):
        yield AddToTransaction(
            transactional_id=value.v3_and_below_transactional_id,
            producer=ProducerLife(
                value.v3_and_below_producer_id, value.v3_and_below_producer_epoch
            ),
            partitions=_partitions(value.v3_and_below_topics),
        )


def _add_values(request: TransactionRequest, answers: list[object]) -> dict[str, Any]:
    if request.version >= _BROKERS_VERSION:
        asked = zip(_add_operations(request), answers, strict=True)
        results = [
            {
                "transactional_id": op.transactional_id,
                "topic_results": _by_topic(_codes(op, answer)),
            }
            for op, answer in asked
            if not isinstance(op, AddToTransaction)
        ]
        return {"error_code": Code.NONE, "results_by_transaction": results}
    asked_for = _partitions(request.value.v3_and_below_topics)
    if answers:
        code = code_for(answers[0], request.version, _FENCED_VERSION)
        codes = dict.fromkeys(asked_for, code)
    else:
        unknown = _unknown(request)
        codes = {one: unknown.get(one, Code.OPERATION_NOT_ATTEMPTED) for one in asked_for}
    return {"results_by_topic_v3_and_below": _by_topic(codes)}


def _codes(op: VerifyPartitions | TellFates, answer: object) -> dict[TopicPartition, Code]:
    return verified(op, answer) if isinstance(op, VerifyPartitions) else fate_codes(op, answer)


def _by_topic(codes: dict[TopicPartition, Code]) -> list[dict[str, Any]]:
    topics: dict[str, list[dict[str, Any]]] = {}
    for one, code in codes.items():
        row = {"partition_index": one.partition, "partition_error_code": code}
        topics.setdefault(one.topic, []).append(row)
    return [{"name": name, "results_by_partition": rows} for name, rows in topics.items()]


ADD_PARTITIONS = TransactionApi(_add_operations, _add_values)


def _end_operations(request: TransactionRequest) -> Iterator[EndTransaction]:
    value = request.value
    yield EndTransaction(
        transactional_id=value.transactional_id,
        producer=ProducerLife(value.producer_id, value.producer_epoch),
        commits=value.committed,
    )


def _end_values(request: TransactionRequest, answers: list[object]) -> dict[str, Any]:
    return {"error_code": code_for(answers[0], request.version, _FENCED_VERSION)}


END_TRANSACTION = TransactionApi(_end_operations, _end_values)


def write_markers(manager: ReplicaManager) -> Handler:
    """Return the handler of WriteTxnMarkers, for coordinators: only brokers may send requests."""
    writer = MarkerWriter(manager)

    async def handle(context: RequestContext) -> Reply:
        request = context.decoded()
        markers: list[PartitionMarker] = []
        async for one in in_turns(request.markers):
            producer = ProducerLife(one.producer_id, one.producer_epoch)
            marker = EndMarker(one.transaction_result, one.coordinator_epoch)
            markers += [
                PartitionMarker(TopicPartition(topic.name, index), producer, marker)
                for topic in one.topics
                for index in topic.partition_indexes
            ]
        return _markers_reply(context, await writer.write(markers))

    return handle


def _markers_reply(context: RequestContext, codes: list[tuple[PartitionMarker, Code]]) -> bytes:
    told: dict[int, Topics] = {}
    for one, code in codes:
        topics = told.setdefault(one.producer.producer_id, {})
        topics.setdefault(one.partition.topic, {})[one.partition.partition] = code
    markers = [
        {
            "producer_id": producer_id,
            "topics": [
                {
                    "name": name,
                    "partitions": [
                        {"partition_index": index, "error_code": code}
                        for index, code in rows.items()
                    ],
                }
                for name, rows in topics.items()
            ],
        }
        for producer_id, topics in told.items()
    ]
    return encode_response(context.api_key, context.api_version, {"markers": markers})
