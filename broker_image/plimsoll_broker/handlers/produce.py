"""Produce: check each batch once, append it, and answer when the protocol's rules allow.

Called by the sessions. If a client has no right to write a topic, the topic is not looked up and
its batches are not read, not even their headers: the time that takes would tell whether the topic
exists. A batch is never copied: it is stamped in place, in the buffer in which it was received, and
written from there. The replica decides whether it may be written and when the client is answered.

`DeniedTopics`: the topics of a request that its client may not write, found before anything else.
Each topic is checked once. If the security rules have changed by the time of the append, the topic
is checked again, so that a revoked right no longer counts.

`ProduceAnswer`: the results of one Produce request. Some results wait for a commit or a flush. Made
by the handler; replicas hold the waiters (`AckWaiter`).
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import NamedTuple

from plimsoll_broker.background import SLICE_S
from plimsoll_broker.clocks import WallClock
from plimsoll_broker.coordinator.verifier import ServedTransactions
from plimsoll_broker.handler_failures import set_answer
from plimsoll_broker.handlers.batch_checks import (
    PARTITIONS_AT_ONCE,
    Answers,
    BadSent,
    Checked,
    CheckedFor,
    InOrder,
    Positioned,
    Wanted,
    by_version,
    check_at_once,
    check_times,
    every_batch,
    may_be_read,
)
from plimsoll_broker.handlers.long_work import Aside, in_turns, next_turn
from plimsoll_broker.handlers.transactions.first_batches import FirstBatches, may_transact
from plimsoll_broker.replication.disk_shares import REFUSED_TEXT
from plimsoll_broker.replication.hosted_partitions import Demand, Hosted
from plimsoll_broker.replication.replica_manager import ReplicaManager
from plimsoll_broker.replication.traffic import Traffic
from plimsoll_broker.security.authority import Rights
from plimsoll_broker.server.connection_state import (
    CloseConnection,
    ConnectionState,
    RejectedSequences,
)
from plimsoll_broker.server.dispatch import Reply, RequestContext
from plimsoll_broker.server.requests_and_replies import ReplyLater
from plimsoll_core.cluster import listener_peers
from plimsoll_core.cluster.listeners import Listener
from plimsoll_core.cluster.model import PartitionKey
from plimsoll_core.cluster.topic_names import INTERNAL_TOPICS
from plimsoll_core.errors import Code
from plimsoll_core.ids import BrokerId
from plimsoll_core.replica.commit import AckWaiter
from plimsoll_core.replica.replica_values import Append, Duplicate
from plimsoll_core.security.acl import AclOperation
from plimsoll_core.security.state import SecurityState
from plimsoll_wire.batches import BatchHeader
from plimsoll_wire.produce import (
    PARSED_BYTES,
    NodeEndpoint,
    ProducedPartition,
    ProduceRequest,
    decode_request,
    encode_response,
)

_WRITE = AclOperation.WRITE


class DeniedTopics(NamedTuple):
    """The topics of one request that its client may not write. `rights`: the client's rights; None
    if authorization is off. `decided_by`: the security rules by which `names` was decided."""

    names: frozenset[str] = frozenset()
    rights: Rights | None = None
    decided_by: SecurityState | None = None

    def may(self, name: str) -> bool:
        """Return True if the client may write the topic at the time of the call: always without
        authorization, never if the topic is in `names`. If the security rules have changed since
        `names` was decided, check the right again, with an audit entry for a denial."""
        rights = self.rights
        if rights is None:
            return True
        if name in self.names:
            return False
        return rights.security is self.decided_by or rights.topic(_WRITE, name)


_NO_NAMES: frozenset[str] = frozenset()
NOTHING = DeniedTopics()


def denied_at_once(rights: Rights | None, request: ProduceRequest) -> DeniedTopics:
    """Return the topics of the request that the client has no right to write, and audit each
    denial. For requests that name few topics. `rights` is None if authorization is off; then none
    is denied."""
    if rights is None:
        return NOTHING
    decided_by = rights.security
    names = [one.name for one in request.topics if not rights.topic(_WRITE, one.name)]
    return DeniedTopics(frozenset(names) if names else _NO_NAMES, rights, decided_by)


async def denied_in_slices(rights: Rights | None, request: ProduceRequest) -> DeniedTopics:
    """Return the same as `denied_at_once`, for any number of topics: the checks are done in time
    slices."""
    if rights is None:
        return NOTHING
    decided_by = rights.security
    names: set[str] = set()
    async for topic in in_turns(request.topics):
        if not rights.topic(_WRITE, topic.name):
            names.add(topic.name)
    return DeniedTopics(frozenset(names), rights, decided_by)


Results = list[tuple[str, list[ProducedPartition]]]


class ProduceAnswer:
    """The results of one Produce request, by topic and partition. The reply is sent once `whole`
    was called and no partition waits for its acknowledgement."""

    __slots__ = (
        "_charges",
        "_errors",
        "_future",
        "_remaining",
        "denied",
        "failed",
        "request",
        "results",
        "version",
    )

    def __init__(
        self,
        context: RequestContext,
        request: ProduceRequest,
        traffic: Traffic,
        denied: DeniedTopics,
    ) -> None:
        self.version = context.api_version
        self.denied = denied
        self._charges = context.charges
        self._errors = traffic.errors
        self.request = request
        self.results: Results = [(topic.name, []) for topic in request.topics]
        self.failed = False
        self._remaining = 1  # one until `whole`
        self._future: ReplyLater | None = None

    @property
    def throttle_ms(self) -> int:
        """The throttle time to report in the reply, in ms."""
        return 0 if self._charges is None else int(self._charges.throttle_ms)

    def add(self, topic: int, result: ProducedPartition) -> None:
        if result.code != Code.NONE:
            self.failed = True
            self._errors["PRODUCE", result.code] += 1
        self.results[topic][1].append(result)

    def waiter(self, topic: int, note: Callable[[int], None] | None) -> ProduceAck:
        """Return a token for the partition that was added last: the reply waits until the token's
        `answer` is called. `topic`: the position of its topic in `results`. `note`: called with the
        error code if the batch is not acknowledged; None if nothing is to be recorded then."""
        self._remaining += 1
        return ProduceAck(self, topic, len(self.results[topic][1]) - 1, note)

    def answered(self, topic: int, result: int, code: int) -> None:
        """Set the result of one partition: `code`, NONE if acknowledged. `topic` and `result` are
        positions in `results`. If no other partition waits and `whole` was called, complete the
        future of the reply."""
        if code != Code.NONE:
            self._errors["PRODUCE", code] += 1
            partitions = self.results[topic][1]
            partitions[result] = ProducedPartition(partitions[result].partition, code)
        self._remaining -= 1
        future = self._future
        # If the client has disconnected, its session has cancelled the future.
        if not self._remaining and future is not None and not future.done():
            set_answer(future, encode_response, self.version, self.results, (), self.throttle_ms)

    def whole(self) -> ReplyLater | None:
        """Declare that all partitions were added. Return the future of the reply, or None if no
        partition waits, so that the caller makes the reply now. Drop the reference to the request,
        so that the memory of its batches is free while the commit is awaited."""
        del self.request
        self._remaining -= 1
        if self._remaining:
            self._future = ReplyLater()
        return self._future


class ProduceAck:
    """The token of one partition's `AckWaiter`. The replica calls `answer` when the batch is
    acknowledged or has failed."""

    __slots__ = ("_answering", "_note", "_result", "_topic")

    def __init__(
        self,
        answering: ProduceAnswer,
        topic: int,
        result: int,
        note: Callable[[int], None] | None,
    ) -> None:
        self._answering = answering
        self._topic = topic
        self._result = result
        self._note = note

    def answer(self, code: int) -> None:
        if code != Code.NONE and self._note is not None:
            self._note(code)
        self._answering.answered(self._topic, self._result, code)


TIMEOUT_MS_MAX = 10 * 60 * 1000
LEADER_HINTS_VERSION = 10
NOT_HERE = BadSent(Code.NOT_LEADER_OR_FOLLOWER, "")
"""The result of a batch that was not checked, since it could not be accepted here at that time."""
OVERTAKES = (
    "the record batch is refused, because an earlier batch of its producer was refused; send "
    "that batch first"
)
_NOT_HERE = frozenset({Code.NOT_LEADER_OR_FOLLOWER, Code.FENCED_LEADER_EPOCH})

_Sent = tuple[str, int, memoryview | None]
"""Topic name, partition index and records of a batch."""


def _places(request: ProduceRequest, denied: DeniedTopics) -> Iterator[tuple[str, int]]:
    return (
        (topic.name, sent[0])
        for topic in request.topics
        if topic.name not in denied.names
        for sent in topic.partitions
    )


def _without_contents(request: ProduceRequest, denied: DeniedTopics) -> ProduceRequest:
    """Return the request with None in place of the records of each denied topic."""
    if not denied.names:
        return request
    topics = [
        topic._replace(partitions=[one._replace(records=None) for one in topic.partitions])
        if topic.name in denied.names
        else topic
        for topic in request.topics
    ]
    return request._replace(topics=topics)


class ProduceHandler:
    """The handler of Produce; `__call__` serves a request.

    A request that can be checked quickly is served in the call. A longer one is checked in a
    thread, and later requests of its connection wait for it, so that none overtakes. The same holds
    for a request to a partition with a new log, since that must be durable before its first append.
    """

    def __init__(
        self,
        manager: ReplicaManager,
        aside: Aside,
        transactions: ServedTransactions | None = None,
    ) -> None:
        self._manager = manager
        self._first_batches = FirstBatches(manager, transactions)
        self._serving = InOrder(aside)
        self._clock = manager.wall_clock

    def __call__(self, context: RequestContext) -> Reply | Awaitable[Reply | None] | None:
        request = decode_request(context.body, context.api_version)
        named = 0
        for topic in request.topics:
            named += len(topic.partitions)
        context.parsed = PARSED_BYTES * named
        connection, charges = context.connection, context.charges
        denied: DeniedTopics | None = None
        if len(request.topics) <= PARTITIONS_AT_ONCE and self._serving.lines.idle(connection):
            denied = NOTHING
            if context.rights is not None:
                denied = denied_at_once(context.rights, request)
                request = _without_contents(request, denied)
            if not self._waits(request, denied):
                leads = self._leading(denied) if denied.names else self._leads
                checked = check_at_once(request, leads)
            else:
                checked = None
            if checked is not None:
                answer = ProduceAnswer(context, request, self._manager.traffic, denied)
                checked = by_version(checked, context.api_version)
                if named == len(request.topics) == 1:  # most requests: nothing can be left
                    index, records = request.topics[0].partitions[0]
                    result = checked.get((0, 0), NOT_HERE)
                    self._partition(connection, answer, 0, index, records, result)
                elif left := self._slice(connection, answer, checked):
                    return self._later(context, answer, left, checked, leads)
                if charges is not None:
                    charges.took(len(context.body))
                return self._finished(answer, context.connection.listener)
        if charges is not None:
            charges.produced(len(context.body))
        return self._serving.lines.add(context, partial(self._serve, context, request, denied))

    def _waits(self, request: ProduceRequest, denied: DeniedTopics) -> bool:
        """Return True if something must be awaited before the request's batches are appended: new
        logs, or coordinators of transactions."""
        new_logs = self._manager.store.new_logs
        if new_logs and new_logs.among(_places(request, denied)):
            return True
        first = self._first_batches
        return request.transactional_id is not None and first.among(request, denied.names)

    def _slice(
        self, connection: ConnectionState, answer: ProduceAnswer, checked: Answers
    ) -> list[Positioned]:
        """Append or refuse the batches of a request in order, for about SLICE_S seconds. Return
        those that are left: an append may make files, on a slow disk."""
        until_s = time.monotonic() + SLICE_S
        batches = every_batch(answer.request)
        for where, _, (index, records) in batches:
            result = checked.get(where, NOT_HERE)
            self._partition(connection, answer, where[0], index, records, result)
            if time.monotonic() >= until_s:
                return list(batches)
        return []

    def _later(
        self,
        context: RequestContext,
        answer: ProduceAnswer,
        left: list[Positioned],
        checked: Answers,
        leads: Wanted,
    ) -> Awaitable[Reply | None]:
        """Append the batches that are left of a short request in later turns, before all later
        requests of its connection. Called in the turn in which the batches were checked."""
        wanted = CheckedFor(leads, self._manager.by_name)
        for _, name, (index, records) in left:
            wanted(name, index, len(records or b""))
        if context.charges is not None:
            context.charges.produced(len(context.body))

        async def rest() -> Reply | ReplyLater | None:
            await next_turn()
            async for where, name, (index, records) in in_turns(left):
                still = wanted.still(name, index)
                result = checked.get(where, NOT_HERE) if still else NOT_HERE
                self._partition(context.connection, answer, where[0], index, records, result)
            if context.charges is not None:
                context.charges.took()
            return self._finished(answer, context.connection.listener)

        return self._serving.lines.add(context, rest)

    async def _serve(
        self, context: RequestContext, request: ProduceRequest, denied: DeniedTopics | None
    ) -> Reply | ReplyLater | None:
        """Serve a long request: check its batches in threads, make new logs of its partitions
        durable, then append batch by batch, in slices that are fair by principal. `denied`: the
        topics that the client may not write; None if its rights were not checked yet."""
        if denied is None:
            denied = await denied_in_slices(context.rights, request)
            request = _without_contents(request, denied)
        answer = ProduceAnswer(context, request, self._manager.traffic, denied)
        wanted = CheckedFor(self._leading(denied), self._manager.by_name)
        found = await self._serving.check_in_threads(request, wanted)
        checked = by_version(found, context.api_version)
        if request.transactional_id is not None:
            await self._first_batches.verify(request, denied.names, checked)
        await self._manager.flusher.make_durable(self._manager.store, _places(request, denied))
        async for where, name, (index, records) in in_turns(every_batch(request)):
            kept, result = records, checked.get(where, NOT_HERE)
            if name not in denied.names:
                kept, result = await self._in_codec(name, index, records, result)
                result = result if wanted.still(name, index) else NOT_HERE
            self._partition(context.connection, answer, where[0], index, kept, result)
        if context.charges is not None:
            context.charges.took()  # before the client is answered
        return self._finished(answer, context.connection.listener)

    async def _in_codec(
        self, topic: str, index: int, records: memoryview | None, checked: Checked
    ) -> tuple[memoryview | None, Checked]:
        """Return the batch and the result of its check; if the topic requires another codec, the
        recompressed batch with its header, or an error in place of the header if recompression
        fails."""
        hosted = self._manager.by_name(topic, index)
        if hosted is None or records is None or isinstance(checked, BadSent):
            return records, checked
        codec = hosted.demand.codec
        if codec is None or codec == checked.codec:
            return records, checked
        size_max = hosted.max_message_bytes
        made = await self._serving.recompressed(checked, records, codec, size_max)
        return (records, made) if isinstance(made, BadSent) else made

    def _leading(self, denied: DeniedTopics) -> Wanted:
        """Return a function that returns what `_leads` does, but None for denied topics, without
        looking them up."""
        if not denied.names:
            return self._leads
        names = denied.names

        def leads(topic: str, index: int, size: int) -> Demand | None:
            return None if topic in names else self._leads(topic, index, size)

        return leads

    def _leads(self, topic: str, index: int, size: int) -> Demand | None:
        """Return the demands of the topic on a batch of `size` bytes. Return None if the batch may
        not be accepted here: this broker does not lead the partition, or the batch exceeds
        max.message.bytes."""
        hosted = self._manager.by_name(topic, index)
        if hosted is None or hosted.replica.leader is None or size > hosted.max_message_bytes:
            return None
        return hosted.demand

    def _finished(self, answer: ProduceAnswer, listener: Listener) -> Reply | ReplyLater | None:
        acks = answer.request.acks
        future = answer.whole()
        if acks == 0:
            if answer.failed:
                # The only way to report an error to a client with acks=0.
                raise CloseConnection("produce-failed")
            return None
        return future or self._reply(answer, listener)

    # --- one partition --------------------------------------------------------------------------

    def _partition(
        self,
        connection: ConnectionState,
        answer: ProduceAnswer,
        topic: int,
        index: int,
        records: memoryview | None,
        checked: Checked,
    ) -> None:
        """Append or refuse one batch and add its result to `answer`. If the reply has to wait for
        the batch's commit or flush, queue a waiter at the replica."""
        request = answer.request
        name = request.topics[topic].name
        # Checked in the turn of the append, however long the request has waited.
        if answer.denied.rights is not None:
            if not answer.denied.may(name):
                answer.add(topic, ProducedPartition(index, Code.TOPIC_AUTHORIZATION_FAILED))
                return
            if not may_transact(answer.denied.rights, request, checked):
                code = Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
                answer.add(topic, ProducedPartition(index, code))
                return
        hosted = self._manager.by_name(name, index)
        result, required = self._in_order(
            connection, request, hosted, (name, index, records), checked
        )
        answer.add(topic, result)
        if required is not None and hosted is not None:
            timeout_ms = min(max(request.timeout_ms, 0), TIMEOUT_MS_MAX)
            note = self._noting(connection, name, index, checked)
            ack = answer.waiter(topic, note)
            waiter = AckWaiter(required, self._manager.now_ms() + timeout_ms, ack)
            replica = hosted.replica
            (replica.wait_for_commit if request.acks == -1 else replica.wait_for_flush)(waiter)
            self._manager.touch(hosted)

    def _noting(
        self, connection: ConnectionState, topic: str, index: int, header: Checked
    ) -> Callable[[int], None] | None:
        """Return the callback that records the error of a batch that is appended but not
        acknowledged. Return None if the batch was refused or its producer is not idempotent."""
        if not isinstance(header, BatchHeader) or header.producer_id < 0:
            return None
        producer = header.producer_id, header.producer_epoch, header.base_sequence

        def note(code: int) -> None:
            refused = _refused_on(connection)
            refused.not_committed(topic, index, producer, code, self._manager.now_ms())

        return note

    def _in_order(
        self,
        connection: ConnectionState,
        request: ProduceRequest,
        hosted: Hosted | None,
        sent: _Sent,
        checked: Checked,
    ) -> tuple[ProducedPartition, int | None]:
        """Append or refuse one batch as `_one` does, and record a rejection on the connection. If
        the batch would overtake a rejected batch of the same connection, reject it with the same
        error instead. Nothing is read from the header of a damaged batch, also if it was refused
        unchecked."""
        refused = connection.refused
        topic, index, records = sent
        damaged = isinstance(checked, BadSent) and not may_be_read(records)
        if damaged:
            _refused_on(connection).damaged()
        elif refused:
            newest = _nothing if hosted is None else hosted.log.producers.newest
            why = refused.overtaken_by(topic, index, records, newest, self._manager.now_ms())
            if why is not None:
                return ProducedPartition(index, why, message=OVERTAKES), None
        result, required = self._one(request, hosted, sent, checked, connection.holder)
        if not damaged and (refused or result.code != Code.NONE):
            refused = _refused_on(connection)
            refused.answered(topic, index, records, result.code, self._manager.now_ms())
        return result, required

    def _one(
        self,
        request: ProduceRequest,
        hosted: Hosted | None,
        sent: _Sent,
        checked: Checked,
        writer: str,
    ) -> tuple[ProducedPartition, int | None]:
        """Append or refuse one batch. Return the partition's result, and the offset up to which
        records must be acknowledged before the client is answered; None for a refused batch or if
        the client need not wait. A duplicate of an appended batch succeeds with the offsets of the
        first. `writer`: the principal or address that the bytes on the disk count for."""
        topic, index, records = sent
        acks = request.acks
        if acks not in (-1, 0, 1):
            return _refused(
                index,
                Code.INVALID_REQUIRED_ACKS,
                "the acks of a Produce request must be -1, 0 or 1",
            ), None
        if topic in INTERNAL_TOPICS:
            return _refused(
                index,
                Code.INVALID_TOPIC_EXCEPTION,
                "the topic of the Produce request is internal; only brokers may write to it",
            ), None
        if hosted is None:
            manager = self._manager
            return ProducedPartition(index, manager.missing(manager.topic_id(topic), index)), None
        if acks != -1 and not self._manager.may_serve(hosted):
            return ProducedPartition(index, Code.NOT_LEADER_OR_FOLLOWER), None
        header = self._first_batches.check(request, hosted, checked)
        header = _judged(hosted, records, header, self._clock)
        if not isinstance(header, BatchHeader):
            message, bad = header.message or None, header.records
            return ProducedPartition(index, header.code, message=message, bad_records=bad), None
        assert records is not None
        verdict = hosted.replica.produce(header, acks)
        match verdict:
            case Append():
                if self._manager.disk_shares.refuses(hosted, writer, header.length):
                    return _refused(index, Code.KAFKA_STORAGE_ERROR, REFUSED_TEXT), None
                return self._append(hosted, records, header, verdict, acks)
            case Duplicate(base_offset, last_offset):
                result = self._success(hosted, base_offset, None)
                return result, _required(hosted, last_offset + 1, acks)
            case _:
                return ProducedPartition(index, verdict), None

    def _append(
        self, hosted: Hosted, records: memoryview, header: BatchHeader, place: Append, acks: int
    ) -> tuple[ProducedPartition, int | None]:
        stamp_ms = self._clock.stamp_ms() if hosted.log_append_time else None
        manager = self._manager
        written = manager.driver.append_produced(hosted, records, header, place, stamp_ms)
        manager.touch(hosted)
        if not written:
            return ProducedPartition(hosted.key.index, Code.KAFKA_STORAGE_ERROR), None
        size, records_in, traffic = header.length, header.count, manager.traffic
        traffic.bytes_in += size
        traffic.records_in += records_in
        hosted.bytes_in += size
        hosted.records_in += records_in
        base_offset = place.base_offset
        required = _required(hosted, base_offset + header.last_offset_delta + 1, acks)
        return self._success(hosted, base_offset, stamp_ms), required

    def _success(
        self, hosted: Hosted, base_offset: int, append_time_ms: int | None
    ) -> ProducedPartition:
        return ProducedPartition(
            hosted.key.index,
            Code.NONE,
            base_offset,
            -1 if append_time_ms is None else append_time_ms,
            hosted.log.log_start_offset,
        )

    # --- telling clients where to go ------------------------------------------------------------

    def _leader_of(
        self, name: str, index: int, listener: Listener
    ) -> tuple[BrokerId, int, str, int] | None:
        """Return the id, leader epoch, host and port of the partition's leader, for a client that
        sent its request to another broker. Return None if the partition does not exist, is
        leaderless, or has a leader without an endpoint on the client's listener."""
        topic_id, image = self._manager.topic_id(name), self._manager.image
        if topic_id is None or image is None:
            return None
        partition = image.partitions.get(PartitionKey(topic_id, index))
        if partition is None or partition.leader is None:
            return None
        broker = image.brokers.get(partition.leader)
        endpoint = None if broker is None else listener_peers.for_clients(broker, listener)
        if broker is None or endpoint is None:
            return None
        return broker.id, partition.leader_epoch, endpoint.host, endpoint.port

    def _reply(self, answer: ProduceAnswer, listener: Listener) -> bytes:
        version, results = answer.version, answer.results
        if not answer.failed or version < LEADER_HINTS_VERSION:
            return encode_response(version, results, (), answer.throttle_ms)
        endpoints: dict[int, NodeEndpoint] = {}
        for name, partitions in results:
            for at, partition in enumerate(partitions):
                if partition.code in _NOT_HERE:
                    leader = self._leader_of(name, partition.partition, listener)
                    if leader is not None:
                        partitions[at] = partition._replace(leader=leader[:2])
                        endpoints[leader[0]] = NodeEndpoint(leader[0], leader[2], leader[3])
        return encode_response(version, results, list(endpoints.values()), answer.throttle_ms)


def _required(hosted: Hosted, end: int, acks: int) -> int | None:
    """Return `end` if the client must wait until records below it are committed (acks=-1), or are
    flushed here as flush.messages requires (acks=1). Return None if it need not wait: acks=0, or
    acks=1 with nothing to flush."""
    if acks == -1 or (acks == 1 and hosted.log.countable_end < end):
        return end
    return None


def _refused_on(connection: ConnectionState) -> RejectedSequences:
    """Return the connection's `RejectedSequences`; create the object at the first rejection."""
    if connection.refused is None:
        connection.refused = RejectedSequences()
    return connection.refused


def _nothing(producer_id: int) -> None:
    """Return None for every producer id. Used if the partition has no log here that could know the
    producer."""


def _judged(
    hosted: Hosted, records: memoryview | None, checked: Checked, clock: WallClock
) -> Checked:
    """Apply the partition's configs to the result of a batch's check: the size limit and, unless
    the broker sets timestamps, their range. Return the header, or the error; KAFKA_STORAGE_ERROR if
    the batch was not checked because the replica is offline."""
    if records is not None and len(records) > hosted.max_message_bytes:
        message = (
            f"the record batch has {len(records)} bytes, more than the topic's max.message.bytes "
            f"allows ({hosted.max_message_bytes})"
        )
        return BadSent(Code.MESSAGE_TOO_LARGE, message)
    if checked is NOT_HERE and hosted.replica.failed:
        return BadSent(Code.KAFKA_STORAGE_ERROR, "")
    if isinstance(checked, BatchHeader) and not hosted.log_append_time:
        return check_times(checked, hosted.time_limits, clock.stamp_ms()) or checked
    return checked


def _refused(index: int, code: Code, message: str) -> ProducedPartition:
    return ProducedPartition(index, code, message=message)
