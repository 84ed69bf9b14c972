"""Fetch: what followers replicate from and consumers read from; long polls are parked as data.

Called by the sessions.  A follower's position is taken up once, when its request arrives; reading
may happen again whenever one of its partitions moves.  Sessions are declined: every request is a
full one.  Source: the protocol's rules for a leader's side of a fetch, KIP-74, KIP-227.
"""

from __future__ import annotations

import asyncio
import logging
from typing import NamedTuple
from uuid import UUID

from plimsoll_broker.dispatch import Reply, RequestContext
from plimsoll_broker.hosted import Hosted
from plimsoll_broker.replicas import ReplicaManager
from plimsoll_broker.storage.disk import StorageError
from plimsoll_core.ids import BrokerId
from plimsoll_core.replica.values import Code, EndOffset, FollowerFetch
from plimsoll_wire.fetch import (
    FetchedPartition,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    Topic,
    decode_request,
    encode_response,
)

logger = logging.getLogger("plimsoll.fetch")

RESPONSE_BYTES_MAX = 16 * 2**20
WAIT_MS_MAX = 60_000
_FETCH_SESSION_ID_NOT_FOUND = 70


class _Asked(NamedTuple):
    """One partition of a request; `refused` is set when it never gets as far as reading."""

    partition: FetchPartition
    hosted: Hosted | None
    refused: FetchedPartition | None


class _Read(NamedTuple):
    """What one look at the logs gave; `urgent`: an error or a divergence must not wait."""

    topics: list[Topic]
    size: int
    urgent: bool


class _Poll:
    """A request, parked or not; partitions wake it."""

    __slots__ = ("asked", "connection", "future", "manager", "request", "timer", "version")

    def __init__(
        self,
        manager: ReplicaManager,
        context: RequestContext,
        request: FetchRequest,
        asked: list[tuple[FetchTopic, list[_Asked]]],
    ) -> None:
        self.manager = manager
        self.version = context.api_version
        self.connection = context.connection
        self.request = request
        self.asked = asked
        self.future: asyncio.Future[Reply | None] | None = None
        self.timer: asyncio.TimerHandle | None = None

    @property
    def for_follower(self) -> bool:
        return self.request.replica_id is not None

    # --- reading --------------------------------------------------------------------------------

    def read(self) -> _Read:
        left = min(self.request.max_bytes, RESPONSE_BYTES_MAX)
        topics: list[Topic] = []
        size = 0
        urgent = False
        for topic, asked in self.asked:
            fetched = []
            for one in asked:
                result = one.refused or self._read_one(one, left)
                if result.code != Code.NONE or result.diverging is not None:
                    urgent = True
                got = len(result.records)
                size += got
                left -= got
                fetched.append(result)
            topics.append((topic.name or "", topic.topic_id, fetched))
        return _Read(topics, size, urgent)

    def _read_one(self, one: _Asked, left: int) -> FetchedPartition:
        hosted, partition = one.hosted, one.partition
        assert hosted is not None
        replica, log = hosted.replica, hosted.log
        checked = replica.consumer_fetch(
            partition.offset, partition.leader_epoch, partition.last_fetched_epoch
        )
        if checked is Code.NONE and not self.for_follower and not self.manager.may_serve(hosted):
            checked = Code.NOT_LEADER_OR_FOLLOWER
        if checked is not Code.NONE:
            return _refusal(partition.partition, checked)
        end = log.log_end_offset if self.for_follower else replica.high_watermark
        records = b""
        if left > 0 and partition.offset < end:
            try:
                records = log.read(partition.offset, min(partition.max_bytes, left), end)
            except StorageError as error:
                logger.error("%r cannot be read at %d: %s", hosted, partition.offset, error)
                return FetchedPartition(partition.partition, Code.KAFKA_STORAGE_ERROR)
        return FetchedPartition(
            partition.partition, Code.NONE, replica.high_watermark, log.log_start_offset, records
        )

    def reply(self, read: _Read) -> Reply:
        traffic = self.manager.traffic
        if self.for_follower:
            traffic.replicated_out += read.size
            self.connection.fetch_replied_ms = self.manager.now_ms()
            epoch = self.manager.controller_epoch
            return encode_response(self.version, read.topics, controller_epoch=epoch)
        traffic.bytes_out += read.size
        return encode_response(self.version, read.topics)

    # --- waiting --------------------------------------------------------------------------------

    def park(self) -> asyncio.Future[Reply | None]:
        loop = asyncio.get_running_loop()
        self.future = loop.create_future()
        self.future.add_done_callback(self._leave)
        wait_ms = min(self.request.max_wait_ms, WAIT_MS_MAX)
        self.timer = loop.call_later(wait_ms / 1000, self._expired)
        self._wait_again()
        return self.future

    def _wait_again(self) -> None:
        for _, asked in self.asked:
            for one in asked:
                if one.hosted is not None:
                    one.hosted.replica.parked.park(self, for_commit=not self.for_follower)

    def _leave(self, future: asyncio.Future[Reply | None]) -> None:
        if self.timer is not None:
            self.timer.cancel()
        for _, asked in self.asked:
            for one in asked:
                if one.hosted is not None:
                    one.hosted.replica.parked.forget(self)

    def wake(self) -> None:
        """A partition moved: answer if that is enough, else wait for more."""
        if self.future is None or self.future.done():
            return
        read = self.read()
        if read.urgent or read.size >= self.request.min_bytes:
            self.future.set_result(self.reply(read))
        else:
            self._wait_again()

    def _expired(self) -> None:
        if self.future is not None and not self.future.done():
            self.future.set_result(self.reply(self.read()))


class FetchHandler:
    """`__call__` is the route's handler."""

    def __init__(self, manager: ReplicaManager) -> None:
        self._manager = manager

    def __call__(self, context: RequestContext) -> Reply | asyncio.Future[Reply | None]:
        version = context.api_version
        request = decode_request(context.body, version)
        if request.controller_epoch is not None:
            self._heard(request, request.controller_epoch)
        if request.session_id != 0:
            return encode_response(version, [], _FETCH_SESSION_ID_NOT_FOUND)
        asked = [
            (topic, [self._arrived(context, request, topic, one) for one in topic.partitions])
            for topic in request.topics
        ]
        poll = _Poll(self._manager, context, request, asked)
        read = poll.read()
        enough = read.urgent or read.size >= request.min_bytes or not request.topics
        if enough or request.max_wait_ms <= 0:
            return poll.reply(read)
        return poll.park()

    def _arrived(
        self,
        context: RequestContext,
        request: FetchRequest,
        topic: FetchTopic,
        partition: FetchPartition,
    ) -> _Asked:
        """Find the partition; a follower's position counts from now on."""
        manager = self._manager
        topic_id = topic.topic_id
        if topic.name is not None:
            topic_id = manager.topic_id(topic.name)
        hosted = None if topic_id is None else manager.by_key(topic_id, partition.partition)
        if hosted is None:
            code = self._missing(topic, topic_id, partition.partition)
            return _Asked(partition, None, FetchedPartition(partition.partition, code))
        if request.replica_id is not None:
            checked = hosted.replica.follower_fetch(
                FollowerFetch(
                    request.replica_id,
                    -1 if request.replica_epoch is None else request.replica_epoch,
                    partition.leader_epoch,
                    partition.offset,
                    partition.last_fetched_epoch,
                    partition.log_start_offset or 0,
                    context.connection.fetch_replied_ms,
                ),
                manager.now_ms(),
            )
            manager.touch(hosted)
            if checked is not Code.NONE:
                return _Asked(partition, hosted, _refusal(partition.partition, checked))
        return _Asked(partition, hosted, None)

    def _heard(self, request: FetchRequest, controller_epoch: int) -> None:
        """Only a broker in its present lifetime may say that there is a newer controller."""
        image = self._manager.image
        if image is None or request.replica_id is None or request.replica_epoch is None:
            return
        broker = image.brokers.get(BrokerId(request.replica_id))
        if broker is not None and request.replica_epoch >= broker.broker_epoch:
            self._manager.saw_controller_epoch(controller_epoch)

    def _missing(self, topic: FetchTopic, topic_id: UUID | None, index: int) -> Code:
        if topic_id is None and topic.name is None:
            return Code.UNKNOWN_TOPIC_ID
        return self._manager.missing(topic_id, index)


def _refusal(index: int, answer: Code | EndOffset) -> FetchedPartition:
    if isinstance(answer, EndOffset):
        return FetchedPartition(index, Code.NONE, diverging=answer)
    return FetchedPartition(index, answer)
