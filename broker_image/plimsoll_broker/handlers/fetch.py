"""Fetch: what followers replicate from and consumers read from; long polls are parked as data.

Called by the sessions.  A follower's position is taken up once, when its request arrives; reading
may happen again whenever one of its partitions moves.  Followers may build on a fetch session
(`fetch_session`); consumers' are declined: each of their requests is a full one.  Source: the
protocol's rules for a leader's side of a fetch, KIP-74, KIP-227.
"""

from __future__ import annotations

import asyncio
from itertools import count
from typing import NamedTuple

from plimsoll_broker.dispatch import CloseConnection, Reply, RequestContext
from plimsoll_broker.failures import Answering
from plimsoll_broker.handlers import fetch_session
from plimsoll_broker.handlers.fetch_reading import (
    RESPONSE_BYTES_MAX,
    WAIT_MS_MAX,
    Follower,
    arrive,
    missing,
    read,
)
from plimsoll_broker.handlers.fetch_session import FetchSession
from plimsoll_broker.hosted import Hosted
from plimsoll_broker.replicas import ReplicaManager
from plimsoll_broker.sending import Granted
from plimsoll_core.ids import BrokerId
from plimsoll_core.listeners import Port, may_ask
from plimsoll_core.replica.values import Code
from plimsoll_wire.fetch import (
    TOPIC_ID_VERSION,
    FetchedPartition,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    Topic,
    decode_request,
    encode_response,
)

_FETCH_SESSION_ID_NOT_FOUND = 70
_INVALID_FETCH_SESSION_EPOCH = 71
_FIRST_EPOCH, _FINAL_EPOCH = 0, -1
_SESSION_ID_MAX = 2**31 - 1


class _Asked(NamedTuple):
    """One partition of a request; `refused` is set when it never gets as far as reading."""

    partition: FetchPartition
    hosted: Hosted | None
    refused: FetchedPartition | None


class _Read(NamedTuple):
    """What one look at the logs gave; `urgent`: an error or a divergence must not wait.  `granted`
    bytes of memory are held for it, of `wanted`."""

    topics: list[Topic]
    size: int
    urgent: bool
    granted: int
    wanted: int

    def is_enough(self, min_bytes: int) -> bool:
        """Also what is less than was asked for, when there is no memory for more."""
        short = self.granted < self.wanted and self.size > 0
        return self.urgent or short or self.size >= min_bytes

    @property
    def starved(self) -> bool:
        """Nothing could be read for lack of memory."""
        return self.granted == 0 < self.wanted


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
        """Within the memory that there is for its connection; `reply` or `drop` what it gives."""
        wanted = max(0, min(self.request.max_bytes, RESPONSE_BYTES_MAX))
        granted = self.connection.account.grant(wanted)
        try:
            return self._look(granted, wanted)
        except BaseException:
            self.connection.account.settle(granted, 0)
            raise

    def _look(self, granted: int, wanted: int) -> _Read:
        left = granted
        topics: list[Topic] = []
        size = 0
        urgent = False
        for topic, asked in self.asked:
            fetched = []
            for one in asked:
                result = one.refused or self._read(one, left)
                if result.code != Code.NONE or result.diverging is not None:
                    urgent = True
                got = len(result.records)
                size += got
                left -= got
                fetched.append(result)
            topics.append((topic.name or "", topic.topic_id, fetched))
        return _Read(topics, size, urgent, granted, wanted)

    def _read(self, one: _Asked, left: int) -> FetchedPartition:
        assert one.hosted is not None, "who is not here is refused"
        return read(self.manager, one.hosted, one.partition, left, for_follower=self.for_follower)

    def reply(self, read: _Read) -> Reply:
        traffic = self.manager.traffic
        self.connection.account.settle(read.granted, read.size)
        epoch = None
        if self.for_follower:
            traffic.replicated_out += read.size
            self.connection.fetch_replied_ms = self.manager.now_ms()
            epoch = self.manager.controller_epoch
        else:
            traffic.bytes_out += read.size
        return Granted(
            encode_response(self.version, read.topics, controller_epoch=epoch), read.size
        )

    def drop(self, read: _Read) -> None:
        """It was not enough; what is there is read again when there is more."""
        self.connection.account.settle(read.granted, 0)
        if read.starved:
            self.connection.account.wait(self)

    # --- waiting --------------------------------------------------------------------------------

    def park(self, read: _Read) -> asyncio.Future[Reply | None]:
        loop = asyncio.get_running_loop()
        self.future = loop.create_future()
        self.future.add_done_callback(self._leave)
        wait_ms = min(self.request.max_wait_ms, WAIT_MS_MAX)
        self.timer = loop.call_later(wait_ms / 1000, self._expired)
        self._wait_again(read)
        return self.future

    def _wait_again(self, read: _Read) -> None:
        self.drop(read)
        for _, asked in self.asked:
            for one in asked:
                if one.hosted is not None:
                    one.hosted.replica.parked.park(self, for_commit=not self.for_follower)

    def _leave(self, future: asyncio.Future[Reply | None]) -> None:
        if self.timer is not None:
            self.timer.cancel()
        self.connection.account.forget(self)
        for _, asked in self.asked:
            for one in asked:
                if one.hosted is not None:
                    one.hosted.replica.parked.forget(self)

    def moved(self, hosted: Hosted) -> None:
        """All of its partitions are looked at again anyway."""

    def wake(self) -> None:
        """A partition moved, or there is memory: answer if that is enough, else wait for more."""
        self._answer(at_last=False)

    def _expired(self) -> None:
        self._answer(at_last=True)

    def _answer(self, *, at_last: bool) -> None:
        if self.future is None or self.future.done():
            return
        with Answering(self.future):
            read = self.read()
            if at_last or read.is_enough(self.request.min_bytes):
                self.future.set_result(self.reply(read))
            else:
                self._wait_again(read)


class FetchHandler:
    """`__call__` is the route's handler, on one port."""

    def __init__(self, manager: ReplicaManager, port: Port) -> None:
        self._manager = manager
        self._port = port
        self._session_ids = count(1)

    def __call__(self, context: RequestContext) -> Reply | asyncio.Future[Reply | None]:
        version = context.api_version
        request = decode_request(context.body, version)
        if not may_ask(self._port, request.replica_id, self._manager.around.brokers):
            return self._turned_away(version, request)
        if request.controller_epoch is not None:
            self._heard(request, request.controller_epoch)
        if request.replica_id is not None:
            if self._is_registered(request):
                context.connection.belongs_to_broker()
            return self._follower(context, request)
        if request.session_id != 0:
            return encode_response(version, [], _FETCH_SESSION_ID_NOT_FOUND)
        return self._poll(context, request)

    def _turned_away(self, version: int, request: FetchRequest) -> Reply:
        """Who comes to the wrong port.  A follower may only have an old idea of where its leader
        is: it hears a code that makes it connect again."""
        if request.replica_id is None:
            raise CloseConnection("not-a-follower")
        code = Code.CLUSTER_AUTHORIZATION_FAILED
        topics = [
            (
                topic.name or "",
                topic.topic_id,
                [FetchedPartition(one.partition, code) for one in topic.partitions],
            )
            for topic in request.topics
        ]
        return encode_response(version, topics, code)

    def _follower(
        self, context: RequestContext, request: FetchRequest
    ) -> Reply | asyncio.Future[Reply | None]:
        """Go on with its session, begin another, or do without."""
        connection = context.connection
        begins = request.session_id == 0 and request.session_epoch == _FIRST_EPOCH
        if not begins and request.session_epoch != _FINAL_EPOCH:
            return self._go_on(context, request)
        connection.close()
        if not begins or not self._may_remember(context, request):
            return self._poll(context, request)
        session_id = next(self._session_ids) % _SESSION_ID_MAX + 1
        version = context.api_version
        session = FetchSession(self._manager, connection, session_id, request, version)
        connection.fetch_session = session
        return session.fetch(request)

    def _go_on(
        self, context: RequestContext, request: FetchRequest
    ) -> Reply | asyncio.Future[Reply | None]:
        """Whoever names a session that is not the connection's, or misses a request of it, begins
        anew; a position that an earlier process left here must not count for its successor."""
        session = context.connection.fetch_session
        assert session is None or isinstance(session, FetchSession)
        code = _FETCH_SESSION_ID_NOT_FOUND
        if session is not None and session.is_of(request) and self._is_registered(request):
            if session.is_next(request) and session.has_room(request):
                return session.fetch(request)
            code = _INVALID_FETCH_SESSION_EPOCH
        context.connection.close()
        epoch = self._manager.controller_epoch
        return encode_response(context.api_version, [], code, controller_epoch=epoch)

    def _may_remember(self, context: RequestContext, request: FetchRequest) -> bool:
        """Brokers name topics by id, and their lifetime."""
        return (
            context.api_version >= TOPIC_ID_VERSION
            and request.replica_epoch is not None
            and fetch_session.partitions_named(request) <= fetch_session.PARTITIONS_MAX
            and self._is_registered(request)
        )

    def _is_registered(self, request: FetchRequest) -> bool:
        """Whether it is of the lifetime in which its sender is registered (KIP-903)."""
        if request.replica_id is None or request.replica_epoch is None:
            return False
        broker_id = BrokerId(request.replica_id)
        return self._manager.around.lifetime(broker_id, request.replica_epoch) is Code.NONE

    def _poll(
        self, context: RequestContext, request: FetchRequest
    ) -> Reply | asyncio.Future[Reply | None]:
        follower = None
        if request.replica_id is not None:
            epoch = -1 if request.replica_epoch is None else request.replica_epoch
            follower = Follower(request.replica_id, epoch, context.connection.fetch_replied_ms)
        asked = [
            (topic, [self._arrived(follower, topic, one) for one in topic.partitions])
            for topic in request.topics
        ]
        poll = _Poll(self._manager, context, request, asked)
        read = poll.read()
        enough = read.is_enough(request.min_bytes) or not request.topics
        if enough or request.max_wait_ms <= 0:
            return poll.reply(read)
        return poll.park(read)

    def _arrived(
        self, follower: Follower | None, topic: FetchTopic, partition: FetchPartition
    ) -> _Asked:
        """Find the partition; a follower's position counts from now on."""
        manager = self._manager
        topic_id = topic.topic_id
        if topic.name is not None:
            topic_id = manager.topic_id(topic.name)
        index = partition.partition
        hosted = None if topic_id is None else manager.by_key(topic_id, index)
        if hosted is not None:
            refused = None if follower is None else arrive(manager, hosted, follower, partition)
        elif topic_id is None and topic.name is not None:
            refused = FetchedPartition(index, Code.UNKNOWN_TOPIC_OR_PARTITION)
        else:
            refused = missing(manager, topic_id, index)
        return _Asked(partition, hosted, refused)

    def _heard(self, request: FetchRequest, controller_epoch: int) -> None:
        """Only a broker in its present lifetime may say that there is a newer controller."""
        if self._is_registered(request):
            self._manager.heard_of_controller(controller_epoch)
