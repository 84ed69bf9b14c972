"""DescribeLogDirs: the size of each replica on this broker, and the size and free space of its
volume.

A broker has one directory, its volume. The lag is relative to the high watermark that the replica
knows, as in Kafka. Source: KIP-113, KIP-827.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

from plimsoll_broker.background import in_thread
from plimsoll_broker.handlers.long_work import Aside, in_turns, things
from plimsoll_broker.replication.hosted_partitions import Hosted
from plimsoll_broker.replication.replica_manager import ReplicaManager
from plimsoll_broker.server.dispatch import Handler, RequestContext
from plimsoll_broker.storage.disk import StorageError
from plimsoll_core.errors import Code
from plimsoll_wire.api_versions import ApiKey
from plimsoll_wire.messages import encode_response

UNKNOWN = -1
"""The value in a response for an unknown number of bytes."""


class _ReplicaSize(NamedTuple):
    """One replica on this broker. `size`: the bytes of its log. `lag`: the number of offsets from
    its log end to the high watermark that it knows; 0 if it has all."""

    topic: str
    partition: int
    size: int
    lag: int


class _VolumeRoom(NamedTuple):
    code: Code
    total: int
    usable: int


def describe_log_dirs(manager: ReplicaManager, aside: Aside) -> Handler:
    async def handle(context: RequestContext) -> bytes:
        request = await aside.decoded(context)
        wanted = await aside.some(things(context), partial(_wanted, request))
        room = await _room(manager)
        found = [
            _size(hosted)
            async for hosted in in_turns(manager.hosts())
            if wanted is None or (hosted.name, hosted.key.index) in wanted
        ]
        directory = str(manager.store.directory)
        work = partial(_reply, context.api_version, directory, room, found)
        return await aside.some(len(found), work)

    return handle


def _wanted(request: Any) -> frozenset[tuple[str, int]] | None:
    """Return the topic name and index of each requested partition, or None if all partitions are
    requested."""
    if request.topics is None:
        return None
    return frozenset((each.topic, index) for each in request.topics for index in each.partitions)


async def _room(manager: ReplicaManager) -> _VolumeRoom:
    store = manager.store
    try:
        usable, total = await in_thread(partial(store.disk.room, store.directory))
    except StorageError:
        return _VolumeRoom(Code.KAFKA_STORAGE_ERROR, UNKNOWN, UNKNOWN)
    return _VolumeRoom(Code.NONE, total, usable)


def _size(hosted: Hosted) -> _ReplicaSize:
    lag = max(hosted.replica.high_watermark - hosted.log.log_end_offset, 0)
    return _ReplicaSize(hosted.name, hosted.key.index, hosted.log.size, lag)


def _reply(version: int, directory: str, room: _VolumeRoom, found: list[_ReplicaSize]) -> bytes:
    topics: dict[str, list[dict[str, Any]]] = {}
    for one in sorted(found):
        partition = {
            "partition_index": one.partition,
            "partition_size": one.size,
            "offset_lag": one.lag,
            "is_future_key": False,
        }
        topics.setdefault(one.topic, []).append(partition)
    result = {
        "error_code": room.code,
        "log_dir": directory,
        "topics": [{"name": name, "partitions": each} for name, each in topics.items()],
        "total_bytes": room.total,
        "usable_bytes": room.usable,
    }
    return encode_response(
        ApiKey.DESCRIBE_LOG_DIRS, version, {"error_code": Code.NONE, "results": [result]}
    )
