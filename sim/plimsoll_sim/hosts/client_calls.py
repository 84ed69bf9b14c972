"""Clients' connections to brokers, and the requests of producers and consumers.

Used by the clients of random runs (`clients`) and by those of scenarios.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from dataclasses import dataclass
from typing import Any, NamedTuple

from plimsoll_core.ids import TopicPartition
from plimsoll_sim.hosts.brokers import KAFKA_PORT
from plimsoll_sim.hosts.payload import keyed_records_of, records_of
from plimsoll_wire.api_versions import ApiKey, is_flexible
from plimsoll_wire.batches import BatchHeader, seal
from plimsoll_wire.framing import Framer
from plimsoll_wire.headers import request_frame
from plimsoll_wire.messages import decode_response, encode_request

ANSWER_S = 45.0
TIMEOUT_MS = 30_000


class Lost(Exception):
    """Raised if the connection or the leader is lost, or no answer comes in time."""


class ClientConnection(asyncio.Protocol):
    """A connection of a client. Several requests may be in flight; replies come in their order."""

    def __init__(self) -> None:
        self._framer = Framer(64 * 2**20)
        self._waiting: deque[asyncio.Future[bytes]] = deque()
        self._transport: Any = None
        self.closed = False
        # Set once it is lost.
        self.lost = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    @property
    def stale(self) -> bool:
        """Return True if the connection is closed, or its server's process has died."""
        return self.closed or not self._transport.peer.process.alive

    def data_received(self, data: bytes) -> None:
        self._framer.receive(data)
        while (frame := self._framer.next_frame()) is not None:
            future = self._waiting.popleft()
            if not future.done():
                future.set_result(bytes(frame))

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        self.lost.set()
        for future in self._waiting:
            if not future.done():
                future.set_exception(Lost("connection lost"))
                future.exception()

    def send(self, frame: bytes, *, answered: bool = True) -> asyncio.Future[bytes] | None:
        if self.closed:
            raise Lost("closed")
        self._write(frame)
        if not answered:
            return None
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        return future

    def _write(self, frame: bytes) -> None:
        self._transport.write(frame)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()


class Caller:
    """A client that connects to brokers and sends them requests."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._correlation_id = 0

    def frame(self, key: ApiKey, version: int, values: dict[str, Any]) -> bytes:
        self._correlation_id += 1
        body = encode_request(key, version, values)
        return request_frame(key, version, self._correlation_id, self.name, body)

    async def ask(
        self, connection: ClientConnection, key: ApiKey, version: int, values: dict[str, Any]
    ) -> Any:
        future = connection.send(self.frame(key, version, values))
        assert future is not None
        return await self.answer(future, key, version)

    async def answer(self, future: asyncio.Future[bytes], key: ApiKey, version: int) -> Any:
        try:
            async with asyncio.timeout(ANSWER_S):
                reply = await future
        except TimeoutError:
            raise Lost("no answer") from None
        return decode_response(key, version, reply[5:] if is_flexible(key, version) else reply[4:])

    async def connect(self, host: str) -> ClientConnection:
        try:
            async with asyncio.timeout(2.0):
                _, connection = await asyncio.get_running_loop().create_connection(
                    ClientConnection, host, KAFKA_PORT
                )
        except (OSError, TimeoutError) as error:
            raise Lost(str(error)) from None
        return connection


@dataclass(slots=True)
class Sent:
    """A batch that was sent. `sequence`: that of its first record. `keyed`: True if its topic is
    compacted."""

    ident: bytes
    sequence: int
    records: int
    keyed: bool = False


class ProducerIdAndEpoch(NamedTuple):
    """The answer of InitProducerId."""

    producer_id: int
    epoch: int


def sealed(sent: Sent, producer: ProducerIdAndEpoch | None, attributes: int = 0) -> bytes:
    """Return the bytes of the batch. With `producer`, they contain an idempotent producer's id and
    epoch. `attributes`: TRANSACTIONAL for a batch of a transaction."""
    by = (*producer, sent.sequence) if producer else (-1, -1, -1)
    now_ms = time.time_ns() // 1_000_000
    times = sent.records - 1, now_ms, now_ms
    header = BatchHeader(0, 0, -1, 2, 0, attributes, *times, *by, sent.records)
    records = keyed_records_of if sent.keyed else records_of
    return seal(header, records(sent.ident, sent.records))


def produce_values(at: TopicPartition, acks: int, batch: bytes) -> dict[str, Any]:
    """Return the body of a Produce request."""
    partition = {"index": at.partition, "records": batch}
    return {
        "transactional_id": None,
        "acks": acks,
        "timeout": TIMEOUT_MS,
        "topic_data": [{"name": at.topic, "partition_data": [partition]}],
    }


PRODUCER_ID_VALUES = {"transactional_id": None, "transaction_timeout": 60_000}


def metadata_values(topic: str) -> dict[str, Any]:
    return {
        "topics": [{"name": topic}],
        "allow_auto_topic_creation": False,
        "include_cluster_authorized_operations": False,
        "include_topic_authorized_operations": False,
    }


def list_offsets_values(at: TopicPartition, timestamp: int) -> dict[str, Any]:
    """Return the body of a consumer's ListOffsets request. `timestamp`: -1 for the log end, -2 for
    the log start."""
    partition = {
        "partition_index": at.partition,
        "current_leader_epoch": -1,
        "timestamp": timestamp,
    }
    topics = [{"name": at.topic, "partitions": [partition]}]
    return {"replica_id": -1, "isolation_level": 0, "topics": topics}


def delete_records_values(at: TopicPartition, offset: int) -> dict[str, Any]:
    """Return the body of a DeleteRecords request (version 2). `offset`: -1 for all committed
    records."""
    partition = {"partition_index": at.partition, "offset": offset}
    return {"topics": [{"name": at.topic, "partitions": [partition]}], "timeout": TIMEOUT_MS}


def fetch_values(
    at: TopicPartition, offset: int, leader_epoch: int, wait_ms: int
) -> dict[str, Any]:
    """Return the body of a consumer's Fetch request. `leader_epoch`: the one that it knows, -1 if
    it knows none."""
    partition = {
        "partition": at.partition,
        "current_leader_epoch": leader_epoch,
        "fetch_offset": offset,
        "last_fetched_epoch": -1,
        "log_start_offset": -1,
        "partition_max_bytes": 2**20,
    }
    return {
        "replica_id": -1,
        "max_wait": wait_ms,
        "min_bytes": 1,
        "max_bytes": 2**20,
        "isolation_level": 0,
        "session_id": 0,
        "session_epoch": -1,
        "topics": [{"topic": at.topic, "partitions": [partition]}],
        "forgotten_topics_data": [],
        "rack_id": "",
    }
