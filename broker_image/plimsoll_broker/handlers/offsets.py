"""ListOffsets and OffsetForLeaderEpoch: where a log begins and ends, and where its terms did.

Called by the sessions.  What a consumer may be told is the replica's to say: its end is the high
watermark, and a new leader does not name one until it knows how far the last term committed.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from plimsoll_broker.dispatch import RequestContext
from plimsoll_broker.hosted import Hosted
from plimsoll_broker.replicas import ReplicaManager
from plimsoll_broker.storage.disk import StorageError
from plimsoll_core.replica.values import Code
from plimsoll_wire.messages import decode_request, encode_response

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED = -1, -2, -3, -4, -5
_OFFSET_NOT_AVAILABLE_VERSION = 5


class _Offset(NamedTuple):
    """An answer; -1 where there is nothing to tell."""

    code: int
    timestamp: int = -1
    offset: int = -1


def _epoch(value: int) -> int | None:
    return None if value < 0 else value


class ListOffsetsHandler:
    """`__call__` is the route's handler."""

    def __init__(self, manager: ReplicaManager) -> None:
        self._manager = manager

    def __call__(self, context: RequestContext) -> bytes:
        version = context.api_version
        request = decode_request(context.api_key, version, context.body)
        topics = [
            {
                "name": topic.name,
                "partitions": [
                    self._partition(request, version, topic.name, asked)
                    for asked in topic.partitions
                ],
            }
            for topic in request.topics
        ]
        return encode_response(context.api_key, version, {"topics": topics})

    def _partition(self, request: Any, version: int, name: str, asked: Any) -> dict[str, Any]:
        index = asked.partition_index
        hosted = self._manager.by_name(name, index)
        if hosted is None:
            found = _Offset(self._manager.missing(self._manager.topic_id(name), index))
        else:
            found = self._find(request, hosted, asked)
        if found.code == Code.OFFSET_NOT_AVAILABLE and version < _OFFSET_NOT_AVAILABLE_VERSION:
            found = _Offset(Code.LEADER_NOT_AVAILABLE)
        epoch = None
        if hosted is not None and found.offset >= 0:
            epoch = hosted.log.epochs.epoch_at(found.offset)
        return {
            "partition_index": index,
            "error_code": found.code,
            "timestamp": found.timestamp,
            "offset": found.offset,
            "leader_epoch": -1 if epoch is None else epoch,
        }

    def _find(self, request: Any, hosted: Hosted, asked: Any) -> _Offset:
        leader_epoch = _epoch(getattr(asked, "current_leader_epoch", -1))
        replica = hosted.replica
        timestamp = asked.timestamp
        for_replica = request.replica_id >= 0
        latest = replica.latest_offset(leader_epoch, for_replica=for_replica)
        # On a new leader only the end is unknown; the start and older records are not.
        unknown_end = latest is Code.OFFSET_NOT_AVAILABLE
        if isinstance(latest, Code) and not (unknown_end and timestamp != LATEST):
            return _Offset(latest)
        if not for_replica and not self._manager.may_serve(hosted):
            return _Offset(Code.NOT_LEADER_OR_FOLLOWER)
        if timestamp == LATEST:
            return _Offset(Code.NONE, offset=latest)
        if timestamp in (EARLIEST, EARLIEST_LOCAL):
            return _Offset(Code.NONE, offset=hosted.log.log_start_offset)
        if timestamp == LATEST_TIERED:
            return _Offset(Code.NONE)
        if timestamp < MAX_TIMESTAMP:
            return _Offset(Code.INVALID_REQUEST)
        return self._by_time(hosted, timestamp, latest)

    def _by_time(self, hosted: Hosted, timestamp: int, latest: int | Code) -> _Offset:
        log = hosted.log
        try:
            if timestamp == MAX_TIMESTAMP:
                found = log.newest_timestamp()
            else:
                found = log.offset_for_timestamp(timestamp)
        except StorageError:
            return _Offset(Code.KAFKA_STORAGE_ERROR)
        unknown_end = isinstance(latest, Code)
        if found is None or found[1] >= hosted.replica.high_watermark:
            # Not committed yet - or committed by the last leader without our knowing.
            return _Offset(Code.OFFSET_NOT_AVAILABLE if unknown_end else Code.NONE)
        return _Offset(Code.NONE, *found)


class OffsetForLeaderEpochHandler:
    """`__call__` is the route's handler."""

    def __init__(self, manager: ReplicaManager) -> None:
        self._manager = manager

    def __call__(self, context: RequestContext) -> bytes:
        request = decode_request(context.api_key, context.api_version, context.body)
        topics = [
            {
                "topic": topic.topic,
                "partitions": [self._partition(topic.topic, asked) for asked in topic.partitions],
            }
            for topic in request.topics
        ]
        return encode_response(context.api_key, context.api_version, {"topics": topics})

    def _partition(self, name: str, asked: Any) -> dict[str, Any]:
        index = asked.partition
        hosted = self._manager.by_name(name, index)
        code, epoch, end_offset = Code.NONE, -1, -1
        if hosted is None:
            code = self._manager.missing(self._manager.topic_id(name), index)
        else:
            found = hosted.replica.end_offset_for(
                asked.leader_epoch, _epoch(asked.current_leader_epoch)
            )
            if isinstance(found, Code):
                code = found
            elif not self._manager.may_serve(hosted):
                code = Code.NOT_LEADER_OR_FOLLOWER
            elif found is not None:
                epoch, end_offset = found
        return {
            "partition": index,
            "error_code": code,
            "leader_epoch": epoch,
            "end_offset": end_offset,
        }
