"""ListOffsets: a log's start and end, and the offset of a timestamp.

Called by the sessions. The replica decides what a consumer may see: its end is the high watermark,
or the last stable offset if it reads committed transactions only, and a new leader returns none
until it knows how far the previous leader epoch was committed.

`OffsetForLeaderEpoch`: the end offset of a leader epoch in a log (KIP-320). The replica decides
what a consumer may see.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

from plimsoll_broker.handlers.long_work import THINGS_AT_ONCE, Aside, in_turns, is_short
from plimsoll_broker.replication.hosted_partitions import Hosted
from plimsoll_broker.replication.replica_manager import ReplicaManager
from plimsoll_broker.server.connection_state import CloseConnection
from plimsoll_broker.server.dispatch import Reply, RequestContext
from plimsoll_broker.storage.disk import StorageError
from plimsoll_broker.storage.offsets_by_time import Found, Step
from plimsoll_core.cluster.listener_peers import Port, may_ask
from plimsoll_core.errors import Code
from plimsoll_wire.batches import BatchError
from plimsoll_wire.fetch import READ_COMMITTED
from plimsoll_wire.messages import encode_response

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED = -1, -2, -3, -4, -5
_OFFSET_NOT_AVAILABLE_VERSION = 5
_NO_EPOCH = -1
_SINCE = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9}
"""The request version from which on each special timestamp may be requested."""


class _Offset(NamedTuple):
    """The result for one partition: error code, timestamp in ms since 1970, offset and its leader
    epoch. A field other than `code` is -1 if it has no value."""

    code: int
    timestamp: int = -1
    offset: int = -1
    leader_epoch: int = -1


class _Asked(NamedTuple):
    """One partition of a request. `refused`: the error of a partition that is refused without
    looking at its log, or None."""

    topic: str
    asked: Any
    refused: Code | None

    @property
    def needs_search(self) -> bool:
        timestamp = self.asked.timestamp
        return self.refused is None and (timestamp >= 0 or timestamp == MAX_TIMESTAMP)


def _asked(request: Any, version: int) -> list[_Asked]:
    """Return the partitions of a request, in the client's order."""
    named = [(topic.name, asked) for topic in request.topics for asked in topic.partitions]
    times = Counter((topic, asked.partition_index) for topic, asked in named)
    return [
        _Asked(topic, asked, _refused(version, asked, times[topic, asked.partition_index]))
        for topic, asked in named
    ]


def _refused(version: int, asked: Any, times: int) -> Code | None:
    if times > 1:
        return Code.INVALID_REQUEST
    known = asked.timestamp >= EARLIEST or version >= _SINCE.get(asked.timestamp, version + 1)
    return None if known else Code.UNSUPPORTED_VERSION


def _told(hosted: Hosted, found: _Offset) -> _Offset:
    """Return the result with the leader epoch of its offset filled in; unchanged if the log does
    not know the epoch."""
    epoch = hosted.log.epochs.epoch_at(found.offset)
    return found if epoch is None else found._replace(leader_epoch=epoch)


def _decoded(context: RequestContext) -> tuple[Any, list[_Asked]]:
    request = context.decoded()
    return request, _asked(request, context.api_version)


def _reply(context: RequestContext, asked: Sequence[_Asked], found: Sequence[_Offset]) -> Reply:
    """Encode the reply, grouped by topic in the order of the request."""
    topics: list[dict[str, Any]] = []
    for each, answer in zip(asked, found, strict=True):
        if not topics or topics[-1]["name"] != each.topic:
            topics.append({"name": each.topic, "partitions": []})
        code = answer.code
        if code == Code.OFFSET_NOT_AVAILABLE:
            known = context.api_version >= _OFFSET_NOT_AVAILABLE_VERSION
            code = code if known else Code.LEADER_NOT_AVAILABLE
        topics[-1]["partitions"].append(
            {
                "partition_index": each.asked.partition_index,
                "error_code": code,
                "timestamp": answer.timestamp,
                "offset": answer.offset,
                "leader_epoch": answer.leader_epoch,
            }
        )
    return encode_response(context.api_key, context.api_version, {"topics": topics})


def leader_epoch_of(value: int) -> int | None:
    """Return the leader epoch that a client states, or None for -1 (not stated). Any other number
    is compared with the current one, as in Kafka."""
    return None if value == _NO_EPOCH else value


def _is_stable(request: Any) -> bool:
    """Return True if the client reads committed transactions only. Version 1 cannot ask for it."""
    return bool(getattr(request, "isolation_level", 0) == READ_COMMITTED)


def _replica_of(value: int) -> int | None:
    return None if value < 0 else value


def _check_name(context: RequestContext, request: Any) -> None:
    """Raise CloseConnection if the request names a replica of another broker than the peer's
    certificate does. A peer without a certificate is not checked."""
    if not context.connection.speaks_for(_replica_of(request.replica_id)):
        raise CloseConnection("other-peer")


class ListOffsetsHandler:
    """The handler of ListOffsets on one port; `__call__` serves a request.

    A log's start and end are returned at once. A search by time reads batches: in a thread, one
    segment at a time, when it is the client's turn, so that no request holds up the event loop or
    takes all threads. One batch is decompressed at a time (`compression.OPENED_BYTES_MAX`).
    """

    def __init__(self, manager: ReplicaManager, port: Port, aside: Aside | None = None) -> None:
        self._manager = manager
        self._port = port
        self._aside = aside or Aside()

    def __call__(self, context: RequestContext) -> Reply | Awaitable[Reply]:
        if not is_short(context):
            return self._long(context)
        request, asked = _decoded(context)
        _check_name(context, request)
        searches = any(each.needs_search for each in asked)
        if not searches and len(asked) <= THINGS_AT_ONCE:
            return _reply(context, asked, [self._plain(request, each) for each in asked])
        return self._later(context, request, asked)

    async def _long(self, context: RequestContext) -> Reply:
        request, asked = await self._aside.do(partial(_decoded, context))
        context.settled()
        _check_name(context, request)
        return await self._later(context, request, asked)

    async def _later(self, context: RequestContext, request: Any, asked: list[_Asked]) -> Reply:
        answers = []
        async for each in in_turns(asked):
            if each.needs_search:
                answers.append(await self._by_time(request, each))
            else:
                answers.append(self._plain(request, each))
        return await self._aside.some(len(asked), partial(_reply, context, asked, answers))

    # --- one partition --------------------------------------------------------------------------

    def _look(self, request: Any, each: _Asked) -> _Offset | tuple[Hosted, int | None]:
        """Return the partition and the end offset that this client may see, or the error. A
        follower sees the log end, a consumer the high watermark or the last stable offset. The end
        offset is None if a new leader does not know its high watermark yet and the request is not
        for the end; for the end that is an error."""
        if each.refused is not None:
            return _Offset(each.refused)
        for_replica = self._is_for_replica(request)
        if not for_replica and self._port is Port.REPLICATION:
            return _Offset(Code.CLUSTER_AUTHORIZATION_FAILED)
        index, timestamp = each.asked.partition_index, each.asked.timestamp
        hosted = self._manager.by_name(each.topic, index)
        if hosted is None:
            return _Offset(self._manager.missing(self._manager.topic_id(each.topic), index))
        leader_epoch = leader_epoch_of(getattr(each.asked, "current_leader_epoch", _NO_EPOCH))
        latest = hosted.replica.latest_offset(
            leader_epoch, for_replica=for_replica, stable=_is_stable(request)
        )
        # A new leader only lacks the end; its start and older records are known.
        unknown_end = latest is Code.OFFSET_NOT_AVAILABLE
        if isinstance(latest, Code) and not (unknown_end and timestamp != LATEST):
            return _Offset(latest)
        if not for_replica and not self._manager.may_serve(hosted):
            return _Offset(Code.NOT_LEADER_OR_FOLLOWER)
        return hosted, None if isinstance(latest, Code) else latest

    def _is_for_replica(self, request: Any) -> bool:
        """Return True if the request is a follower's, which may see the log end and not only the
        high watermark.

        On a clients' port a broker id does not make a follower: kafka-python 3.1.0.dev sends
        replica 0 without meaning it, and is answered like a consumer.
        """
        replica = _replica_of(request.replica_id)
        return replica is not None and may_ask(self._port, replica)

    def _plain(self, request: Any, each: _Asked) -> _Offset:
        """Return the result for a special timestamp: the end (LATEST) or start (EARLIEST,
        EARLIEST_LOCAL) of the log, no offset for LATEST_TIERED, or the error."""
        looked = self._look(request, each)
        if isinstance(looked, _Offset):
            return looked
        hosted, latest = looked
        timestamp = each.asked.timestamp
        if timestamp == LATEST:
            assert latest is not None, "an end that is not known is refused"
            return _told(hosted, _Offset(Code.NONE, offset=latest))
        if timestamp in (EARLIEST, EARLIEST_LOCAL):
            return _told(hosted, _Offset(Code.NONE, offset=hosted.log.log_start_offset))
        assert timestamp == LATEST_TIERED, "others are refused, or need a search"
        return _Offset(Code.NONE)

    async def _by_time(self, request: Any, each: _Asked) -> _Offset:
        looked = self._look(request, each)
        if isinstance(looked, _Offset):
            return looked
        hosted, _ = looked
        cuts = hosted.log.cuts
        timestamp = each.asked.timestamp
        try:
            found = await self._search(hosted, timestamp)
        except StorageError:
            return _Offset(Code.KAFKA_STORAGE_ERROR)
        except BatchError:
            damaged = hosted.log.cuts == cuts
            return _Offset(Code.KAFKA_STORAGE_ERROR if damaged else Code.NOT_LEADER_OR_FOLLOWER)
        looked = self._look(request, each)  # the partition may have changed meanwhile
        if isinstance(looked, _Offset):
            return looked
        if looked[0] is not hosted or hosted.log.cuts != cuts:
            return _Offset(Code.NOT_LEADER_OR_FOLLOWER)
        replica = hosted.replica
        end = replica.last_stable_offset if _is_stable(request) else replica.high_watermark
        if found is None or found[1] >= end:
            # Not committed yet, or committed by the previous leader and not known here.
            return _Offset(Code.OFFSET_NOT_AVAILABLE if looked[1] is None else Code.NONE)
        return _told(hosted, _Offset(Code.NONE, *found))

    async def _search(self, hosted: Hosted, timestamp: int) -> Found | None:
        """Return timestamp and offset of the first record with a time of at least `timestamp`
        (MAX_TIMESTAMP: of the newest record). Each segment is read in a thread when it is the
        client's turn. Return None if there is no such record, or if the partition was removed
        meanwhile: its file names may belong to another topic by then."""
        wanted = None if timestamp == MAX_TIMESTAMP else timestamp
        steps: Iterator[Step] | None = None
        while True:
            async with self._aside.queue.turn() as thread:
                if not self._manager.is_here(hosted):
                    return None
                if steps is None:
                    steps = hosted.log.time_search(wanted)
                step = next(steps, None)
                found = None if step is None else await thread(step)
            if step is None or found is not None:
                return found


class OffsetForLeaderEpochHandler:
    """The handler of OffsetForLeaderEpoch; `__call__` serves a request."""

    def __init__(self, manager: ReplicaManager, aside: Aside | None = None) -> None:
        self._manager = manager
        self._aside = aside or Aside()

    def __call__(self, context: RequestContext) -> Reply | Awaitable[Reply]:
        if not is_short(context):
            return self._later(context)
        request = context.decoded()
        topics = [
            {
                "topic": topic.topic,
                "partitions": [self._partition(topic.topic, asked) for asked in topic.partitions],
            }
            for topic in request.topics
        ]
        return encode_response(context.api_key, context.api_version, {"topics": topics})

    async def _later(self, context: RequestContext) -> Reply:
        """Serve a long request: parse and encode in a thread, look up the partitions in time
        slices."""
        request = await self._aside.decoded(context)
        topics: list[dict[str, Any]] = []
        async for topic in in_turns(request.topics):
            partitions = [
                self._partition(topic.topic, asked) async for asked in in_turns(topic.partitions)
            ]
            topics.append({"topic": topic.topic, "partitions": partitions})
        values = {"topics": topics}
        encoded = partial(encode_response, context.api_key, context.api_version, values)
        return await self._aside.do(encoded)

    def _partition(self, name: str, asked: Any) -> dict[str, Any]:
        index = asked.partition
        hosted = self._manager.by_name(name, index)
        code, epoch, end_offset = Code.NONE, -1, -1
        if hosted is None:
            code = self._manager.missing(self._manager.topic_id(name), index)
        else:
            found = hosted.replica.end_offset_for(
                asked.leader_epoch, leader_epoch_of(asked.current_leader_epoch)
            )
            if isinstance(found, Code):
                code = found
            elif not self._manager.may_serve(hosted):
                code = Code.NOT_LEADER_OR_FOLLOWER
            elif found is not None and asked.leader_epoch >= 0:
                epoch, end_offset = found
        return {
            "partition": index,
            "error_code": code,
            "leader_epoch": epoch,
            "end_offset": end_offset,
        }
