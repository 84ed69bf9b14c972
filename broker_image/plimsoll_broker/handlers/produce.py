"""Produce: check each batch once, have it written, and answer when the protocol's rules allow.

Called by the sessions.  The batch stays where it was received: it is stamped in place and written
from there.  Whether it may be written, and when its writer hears of it, is the replica's to say.
"""

from __future__ import annotations

import asyncio
import time

from plimsoll_broker.dispatch import CloseConnection, Connection, Reply, RequestContext
from plimsoll_broker.failures import Answering
from plimsoll_broker.hosted import Hosted
from plimsoll_broker.overtaking import Refused
from plimsoll_broker.replicas import ReplicaManager
from plimsoll_core.replica.values import Append, Code, Duplicate
from plimsoll_core.replica.waiting import AckWaiter
from plimsoll_wire.batches import (
    CODEC_MAX,
    BadBatch,
    BatchError,
    BatchHeader,
    check_crc,
    parse_header,
)
from plimsoll_wire.produce import (
    NodeEndpoint,
    ProducedPartition,
    ProduceRequest,
    decode_request,
    encode_response,
)

TIMEOUT_MS_MAX = 10 * 60 * 1000
LEADER_HINTS_VERSION = 10
OVERTAKES = "a batch that was sent before was refused; send that first"
_NOT_HERE = frozenset({Code.NOT_LEADER_OR_FOLLOWER, Code.FENCED_LEADER_EPOCH})

Results = list[tuple[str, list[ProducedPartition]]]


class _Pending:
    """A reply that waits until `remaining` partitions have been answered."""

    __slots__ = ("future", "remaining", "results", "version")

    def __init__(self, version: int, results: Results, remaining: int) -> None:
        self.version = version
        self.results = results
        self.remaining = remaining
        self.future: asyncio.Future[Reply | None] = asyncio.get_running_loop().create_future()

    def answered(self, at: tuple[int, int], code: int) -> None:
        if code != Code.NONE:
            partitions = self.results[at[0]][1]
            partitions[at[1]] = ProducedPartition(partitions[at[1]].partition, code)
        self.remaining -= 1
        # The client may have gone: its session cancelled the future then.
        if self.remaining == 0 and not self.future.done():
            with Answering(self.future):
                self.future.set_result(encode_response(self.version, self.results))


class _Ack:
    """What one partition's waiter holds."""

    __slots__ = ("at", "pending")

    def __init__(self, pending: _Pending, at: tuple[int, int]) -> None:
        self.pending = pending
        self.at = at

    def answer(self, code: int) -> None:
        self.pending.answered(self.at, code)


class ProduceHandler:
    """`__call__` is the route's handler."""

    def __init__(self, manager: ReplicaManager) -> None:
        self._manager = manager

    def __call__(self, context: RequestContext) -> Reply | asyncio.Future[Reply | None] | None:
        version = context.api_version
        request = decode_request(context.body, version)
        results: Results = []
        waiting: list[tuple[Hosted, int, tuple[int, int]]] = []
        failed = False
        for topic in request.topics:
            produced: list[ProducedPartition] = []
            results.append((topic.name, produced))
            for index, records in topic.partitions:
                hosted = self._manager.by_name(topic.name, index)
                at = (topic.name, index)
                result, required = self._in_order(context.connection, request, hosted, at, records)
                if required is not None and hosted is not None:
                    waiting.append((hosted, required, (len(results) - 1, len(produced))))
                failed = failed or result.code != Code.NONE
                produced.append(result)
        if request.acks == 0:
            if failed:
                # The only way to tell a client that asked not to be told.
                raise CloseConnection("produce-failed")
            return None
        if not waiting:
            return self._reply(version, results, failed)
        return self._wait(version, request.timeout_ms, results, waiting)

    def _wait(
        self,
        version: int,
        timeout_ms: int,
        results: Results,
        waiting: list[tuple[Hosted, int, tuple[int, int]]],
    ) -> asyncio.Future[Reply | None]:
        pending = _Pending(version, results, len(waiting))
        deadline_ms = self._manager.now_ms() + min(max(timeout_ms, 0), TIMEOUT_MS_MAX)
        for hosted, required, at in waiting:
            hosted.replica.wait_for_commit(AckWaiter(required, deadline_ms, _Ack(pending, at)))
            self._manager.touch(hosted)
        return pending.future

    # --- one partition --------------------------------------------------------------------------

    def _in_order(
        self,
        connection: Connection,
        request: ProduceRequest,
        hosted: Hosted | None,
        at: tuple[str, int],
        records: memoryview | None,
    ) -> tuple[ProducedPartition, int | None]:
        """`_one`, unless the batch was sent behind one that was refused."""
        refused = connection.refused
        if refused:
            newest = _nothing if hosted is None else hosted.log.producers.newest
            why = refused.overtaken_by(at, records, newest, self._manager.now_ms())
            if why is not None:
                return ProducedPartition(at[1], why, message=OVERTAKES), None
        result, required = self._one(request, hosted, *at, records)
        if refused or result.code != Code.NONE:
            refused = connection.refused = refused or Refused()
            refused.answered(at, records, result.code, self._manager.now_ms())
        return result, required

    def _one(
        self,
        request: ProduceRequest,
        hosted: Hosted | None,
        topic: str,
        index: int,
        records: memoryview | None,
    ) -> tuple[ProducedPartition, int | None]:
        """The partition's result, and the offset that must be committed before it is told."""
        if request.acks not in (-1, 0, 1):
            return _refused(index, Code.INVALID_REQUIRED_ACKS, "acks must be -1, 0 or 1"), None
        if request.transactional_id is not None:
            return _refused(index, Code.INVALID_REQUEST, "transactions are not supported"), None
        if hosted is None:
            manager = self._manager
            return ProducedPartition(index, manager.missing(manager.topic_id(topic), index)), None
        if request.acks != -1 and not self._manager.may_serve(hosted):
            return ProducedPartition(index, Code.NOT_LEADER_OR_FOLLOWER), None
        checked = _check(hosted, records)
        if isinstance(checked, ProducedPartition):
            return checked._replace(partition=index), None
        assert records is not None
        verdict = hosted.replica.produce(checked, request.acks)
        match verdict:
            case Append():
                return self._append(hosted, records, checked, verdict, request.acks)
            case Duplicate(base_offset, last_offset):
                result = self._success(hosted, base_offset, None)
                return result, last_offset + 1 if request.acks == -1 else None
            case _:
                return ProducedPartition(index, verdict), None

    def _append(
        self, hosted: Hosted, records: memoryview, header: BatchHeader, place: Append, acks: int
    ) -> tuple[ProducedPartition, int | None]:
        stamp_ms = time.time_ns() // 1_000_000 if hosted.log_append_time else None
        manager = self._manager
        written = manager.driver.append_produced(hosted, records, header, place, stamp_ms)
        manager.touch(hosted)
        if not written:
            return ProducedPartition(hosted.key.index, Code.KAFKA_STORAGE_ERROR), None
        manager.traffic.bytes_in += header.length
        required = place.base_offset + header.last_offset_delta + 1 if acks == -1 else None
        return self._success(hosted, place.base_offset, stamp_ms), required

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

    def _reply(self, version: int, results: Results, failed: bool) -> bytes:
        if not failed or version < LEADER_HINTS_VERSION:
            return encode_response(version, results)
        endpoints: dict[int, NodeEndpoint] = {}
        for name, partitions in results:
            for at, partition in enumerate(partitions):
                if partition.code in _NOT_HERE:
                    leader = self._manager.leader_of(name, partition.partition)
                    if leader is not None:
                        partitions[at] = partition._replace(leader=leader[:2])
                        endpoints[leader[0]] = NodeEndpoint(leader[0], leader[2], leader[3])
        return encode_response(version, results, list(endpoints.values()))


def _nothing(producer_id: int) -> None:
    """What is known of a producer where there is no log."""


def _refused(index: int, code: Code, message: str) -> ProducedPartition:
    return ProducedPartition(index, code, message=message)


def _check(hosted: Hosted, records: memoryview | None) -> BatchHeader | ProducedPartition:
    """The one batch's header, or why it is none that a client may send."""
    if not records:
        return _refused(0, Code.INVALID_RECORD, "there is no record batch")
    try:
        header = parse_header(records)
    except BatchError as error:
        torn = error.reason in (BadBatch.TORN, BadBatch.LENGTH)
        code = Code.CORRUPT_MESSAGE if torn else Code.INVALID_RECORD
        return _refused(0, code, error.reason.value)
    if header.length > hosted.max_message_bytes:
        message = f"{header.length} bytes; max.message.bytes is {hosted.max_message_bytes}"
        return _refused(0, Code.MESSAGE_TOO_LARGE, message)
    if not check_crc(records, 0, header.length):
        return _refused(0, Code.CORRUPT_MESSAGE, BadBatch.CRC.value)
    for broken, why in (
        (header.length != len(records), "more than one record batch"),
        (header.base_offset != 0, "the base offset is not 0"),
        (header.count != header.last_offset_delta + 1, "the offsets do not count the records"),
        (header.is_control or header.is_transactional, "transactions are not supported"),
        (header.producer_id >= 0 and header.base_sequence < 0, "a producer id without a sequence"),
        (header.codec > CODEC_MAX, "an unknown compression codec"),
    ):
        if broken:
            return _refused(0, Code.INVALID_RECORD, why)
    return header
