"""DescribeProducers: the idempotent producers that a partition knows, to find out who writes to it.

A broker reports its replica's state, leading or following, as in Kafka. There are no transactions.
Source: KIP-664.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

from plimsoll_broker.background.time_slices import in_slices
from plimsoll_broker.handlers.large_messages import Aside, things
from plimsoll_broker.replication.replica_manager import ReplicaManager
from plimsoll_broker.server.dispatch import Handler, Reply, RequestContext
from plimsoll_core.cluster.topic_names import check_form
from plimsoll_core.errors import Code
from plimsoll_core.replica.producer_states import ActiveProducer
from plimsoll_wire.api_versions import ApiKey
from plimsoll_wire.messages import encode_response

PRODUCERS_MAX = 10_000
"""Producers in one reply, of all partitions together."""
_NONE_BEGUN = {"coordinator_epoch": -1, "current_txn_start_offset": -1}


def describe_producers(manager: ReplicaManager, aside: Aside) -> Handler:
    async def handle(context: RequestContext) -> Reply:
        many = things(context)
        request = await aside.decoded(context)
        topics: list[tuple[str, list[_Told]]] = []
        left = PRODUCERS_MAX
        async for topic in in_slices(request.topics):
            partitions: list[_Told] = []
            async for index in in_slices(topic.partition_indexes):
                told = _told(manager, topic.name, index, left)
                left -= len(told[2])
                partitions.append(told)
            topics.append((topic.name, partitions))
        work = partial(_reply, context.api_version, topics)
        return await aside.some(many + PRODUCERS_MAX - left, work)

    return handle


_Told = tuple[int, Code, list[ActiveProducer]]
"""A partition's index, the error code, and its producers."""


def _told(manager: ReplicaManager, topic: str, index: int, most: int) -> _Told:
    hosted = manager.by_name(topic, index)
    if hosted is None:
        if check_form(topic) is not None:
            return index, Code.INVALID_TOPIC_EXCEPTION, []
        return index, manager.missing(manager.topic_id(topic), index), []
    if hosted.replica.failed:
        return index, Code.KAFKA_STORAGE_ERROR, []
    return index, Code.NONE, hosted.log.producers.active(most)


def _reply(version: int, topics: list[tuple[str, list[_Told]]]) -> bytes:
    told = [
        {"name": name, "partitions": [partition_told(*each) for each in partitions]}
        for name, partitions in topics
    ]
    return encode_response(ApiKey.DESCRIBE_PRODUCERS, version, {"topics": told})


def partition_told(
    index: int, code: int, producers: Iterable[ActiveProducer] = ()
) -> dict[str, Any]:
    return {
        "partition_index": index,
        "error_code": code,
        "error_message": None,
        "active_producers": [{**each._asdict(), **_NONE_BEGUN} for each in sorted(producers)],
    }
