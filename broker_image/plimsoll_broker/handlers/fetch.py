"""Fetch: serves followers, which replicate, and consumers, which read. A fetch that waits for
records is parked as an object, not as a task.

Called by the sessions. A follower's fetch offset is recorded once, when its request arrives;
reading is repeated whenever one of its partitions has something new. Followers may use a fetch
session (`fetch_session`); consumers' sessions are declined, so each of their requests is a full
one. An auditor reads this broker's own replica, led here or not, and never waits. Source: the
protocol's rules for a leader's side of a fetch, KIP-74, KIP-227.
"""

from __future__ import annotations

from collections.abc import Awaitable
from functools import partial
from itertools import count

from plimsoll_broker.handlers import fetch_session
from plimsoll_broker.handlers.fetch_poll import LongPoll, Poll, TooLong
from plimsoll_broker.handlers.fetch_reading import Asked, FollowerIdentity, arrive, missing
from plimsoll_broker.handlers.fetch_session import FetchSession
from plimsoll_broker.handlers.long_work import THINGS_AT_ONCE, Aside, in_turns
from plimsoll_broker.replication.replica_manager import ReplicaManager
from plimsoll_broker.security.authority import Rights
from plimsoll_broker.server.connection_state import CloseConnection
from plimsoll_broker.server.dispatch import Reply, RequestContext
from plimsoll_broker.server.requests_and_replies import ReplyLater
from plimsoll_core.cluster.listener_peers import Port, may_ask
from plimsoll_core.errors import Code
from plimsoll_core.ids import BrokerId
from plimsoll_wire.fetch import (
    TOPIC_ID_VERSION,
    FetchedPartition,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    TooManyNamed,
    decode_request,
    encode_response,
    without_repeats,
)

_FIRST_EPOCH, _FINAL_EPOCH = 0, -1
_SESSION_ID_MAX = 2**31 - 1
_CODE_VERSION = 7
LONG_BYTES = 16 * 1024
"""A larger request, in bytes, is parsed in a thread. It holds some five hundred partitions."""
NAMED_MAX = 20_000
"""The most topics and partitions that a client's fetch may name. A follower's fetch may name any
number."""


class FetchHandler:
    """The handler of Fetch on one port; `__call__` serves a request."""

    def __init__(self, manager: ReplicaManager, port: Port, aside: Aside | None = None) -> None:
        self._manager = manager
        self._port = port
        self._aside = aside or Aside()
        self._named_max = NAMED_MAX if port is Port.CLIENTS else 2 * fetch_session.PARTITIONS_MAX
        self._session_ids = count(1)

    def __call__(self, context: RequestContext) -> Reply | Awaitable[Reply | None]:
        if len(context.body) > LONG_BYTES:
            return self._long(context)
        return self._fetch(context, self._decoded(context.body, context.api_version))

    async def _long(self, context: RequestContext) -> Reply | None:
        version = context.api_version
        try:
            decode = partial(self._decoded, context.body, version, self._named_max)
            request = await self._aside.do(decode)
        except TooManyNamed:
            if version < _CODE_VERSION:
                raise
            return encode_response(version, [], Code.INVALID_REQUEST)
        reply = self._fetch(context, request)
        return await reply if isinstance(reply, Awaitable) else reply

    def _decoded(
        self, body: memoryview, version: int, named_max: int | None = None
    ) -> FetchRequest:
        request = decode_request(body, version, named_max)
        topics = request.topics
        if not topics or len(topics) == len(topics[0].partitions) == 1:  # most requests
            return request
        return without_repeats(request)

    def _fetch(
        self, context: RequestContext, request: FetchRequest
    ) -> Reply | Awaitable[Reply | None]:
        version = context.api_version
        may = may_ask(self._port, request.replica_id)
        if not (may and context.connection.speaks_for(request.replica_id)):
            return self._turned_away(version, request)
        if request.replica_id is not None:
            return self._follower(context, request, is_registered=self._is_registered(request))
        # Both epochs make a request a full one, whatever session it names, as in Kafka; kafka-go's
        # Client sends -1.
        if request.session_epoch not in (_FIRST_EPOCH, _FINAL_EPOCH):
            return encode_response(version, [], Code.FETCH_SESSION_ID_NOT_FOUND)
        if request.own_copy:  # an auditor has no use for waiting
            request = request._replace(max_wait_ms=0)
        return self._poll(context, request)

    def _turned_away(self, version: int, request: FetchRequest) -> Reply:
        """Refuse a fetch that may not be served on this port or to this sender. For a consumer
        raise CloseConnection. A follower may have an outdated address of its leader: return
        CLUSTER_AUTHORIZATION_FAILED for each partition, which makes it connect again."""
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
        self, context: RequestContext, request: FetchRequest, *, is_registered: bool
    ) -> Reply | Awaitable[Reply | None]:
        """Serve a follower's fetch: in the fetch session of its connection, in a new one, or
        without one (which ends the session of the connection). `is_registered`: True if the request
        has the sender's registered broker epoch. Only then may the request report a newer
        controller or begin a fetch session, and only then is its reply outside the clients' memory
        budget."""
        connection = context.connection
        if is_registered:
            connection.belongs_to_broker()
            if request.controller_epoch is not None:
                self._manager.heard_of_controller(request.controller_epoch)
        begins = request.session_id == 0 and request.session_epoch == _FIRST_EPOCH
        if not begins and request.session_epoch != _FINAL_EPOCH:
            return self._go_on(context, request, is_registered=is_registered)
        connection.close()
        if not begins or not is_registered or not _may_be_remembered(context, request):
            return self._poll(context, request)
        session_id = next(self._session_ids) % _SESSION_ID_MAX + 1
        version = context.api_version
        session = FetchSession(self._manager, connection, session_id, request, version)
        connection.fetch_session = session
        return session.fetch(request)

    def _go_on(
        self, context: RequestContext, request: FetchRequest, *, is_registered: bool
    ) -> Reply | ReplyLater:
        """Serve a fetch in the fetch session of its connection. If the request names another
        session, skips a session epoch, would exceed the session's partitions, or does not have the
        registered broker epoch, end the session and return the error with which the follower begins
        another one: a fetch offset of an earlier process of a broker must not count for a later
        one."""
        session = context.connection.fetch_session
        assert session is None or isinstance(session, FetchSession)
        code = Code.FETCH_SESSION_ID_NOT_FOUND
        if session is not None and session.is_of(request) and is_registered:
            if session.is_next(request) and session.has_room(request):
                return session.fetch(request)
            code = Code.INVALID_FETCH_SESSION_EPOCH
        context.connection.close()
        epoch = self._manager.controller_epoch
        return encode_response(context.api_version, [], code, controller_epoch=epoch)

    def _is_registered(self, request: FetchRequest) -> bool:
        """Return True if the request comes from a broker with its registered broker epoch
        (KIP-903)."""
        if request.replica_id is None or request.replica_epoch is None:
            return False
        broker_id = BrokerId(request.replica_id)
        return self._manager.around.lifetime(broker_id, request.replica_epoch) is Code.NONE

    def _poll(
        self, context: RequestContext, request: FetchRequest
    ) -> Reply | Awaitable[Reply | None]:
        follower = None
        if request.replica_id is not None:
            epoch = -1 if request.replica_epoch is None else request.replica_epoch
            follower = FollowerIdentity(
                request.replica_id, epoch, context.connection.fetch_replied_ms
            )
        if fetch_session.partitions_named(request) > THINGS_AT_ONCE:
            return self._long_poll(context, request, follower)
        rights = None if follower is not None else context.rights
        asked = [
            (topic, [self._arrived(follower, rights, topic, one) for one in topic.partitions])
            for topic in request.topics
        ]
        poll = Poll(self._manager, context, request, asked)
        try:
            read = poll.read()
        except TooLong:
            return LongPoll(self._manager, context, request, asked).run(self._aside)
        enough = read.is_enough(request.min_bytes) or not request.topics
        if enough or request.max_wait_ms <= 0:
            return poll.reply(read)
        return poll.park(read)

    async def _long_poll(
        self, context: RequestContext, request: FetchRequest, follower: FollowerIdentity | None
    ) -> Reply:
        """Serve a fetch of many partitions, in time slices, so that it does not hold the event
        loop. `follower`: the sender; None for a consumer."""
        asked: list[tuple[FetchTopic, list[Asked]]] = []
        rights = None if follower is not None else context.rights
        async for topic in in_turns(request.topics):
            arrived = [
                self._arrived(follower, rights, topic, one)
                async for one in in_turns(topic.partitions)
            ]
            asked.append((topic, arrived))
        return await LongPoll(self._manager, context, request, asked).run(self._aside)

    def _arrived(
        self,
        follower: FollowerIdentity | None,
        rights: Rights | None,
        topic: FetchTopic,
        partition: FetchPartition,
    ) -> Asked:
        """Return one partition of a request with the replica here, or with the error if it may not
        be read. For a consumer, check its rights; for a follower, record its fetch offset, which
        acknowledges the records below it. `follower`: None for a consumer. `rights`: None if they
        are not checked."""
        manager, image = self._manager, self._manager.image
        name, topic_id, index = topic.name, topic.topic_id, partition.partition
        if name is None and topic_id is not None and image is not None:
            found = image.topics.get(topic_id)
            name = None if found is None else found.name
        if rights is not None and name is not None and not rights.reads_quietly(name):
            # The audit entry is made by the look, which follows in any case.
            code = Code.TOPIC_AUTHORIZATION_FAILED
            return Asked(partition, None, FetchedPartition(index, code), name)
        if topic.name is not None:
            hosted = manager.by_name(topic.name, index)
        else:
            hosted = None if topic_id is None else manager.by_key(topic_id, index)
        if hosted is not None:
            refused = None
            if follower is not None:
                refused = arrive(manager, hosted, follower, partition, manager.now_ms())
        elif topic.name is not None and (topic_id := manager.topic_id(topic.name)) is None:
            refused = FetchedPartition(index, Code.UNKNOWN_TOPIC_OR_PARTITION)
        else:
            refused = missing(manager, topic_id, index)
        return Asked(partition, hosted, refused, name)


def _may_be_remembered(context: RequestContext, request: FetchRequest) -> bool:
    """Return True if the request may begin a fetch session: it names topics by id, has a broker
    epoch, and does not have too many partitions."""
    return (
        context.api_version >= TOPIC_ID_VERSION
        and request.replica_epoch is not None
        and fetch_session.partitions_named(request) <= fetch_session.PARTITIONS_MAX
    )
