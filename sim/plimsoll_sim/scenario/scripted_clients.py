"""Clients that a scenario controls step by step: they send a request only when a command says so.

Each client is a process of its own on a host of its own, with one connection to each broker that it
has called. It reports requests and answers to the world's witness, as every client does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any

from plimsoll_core.errors import Code
from plimsoll_core.ids import ProducerLife, TopicPartition
from plimsoll_sim.cluster import one_off_requests
from plimsoll_sim.cluster.world import World
from plimsoll_sim.engine.process import Process
from plimsoll_sim.hosts.client_calls import (
    PRODUCER_ID_VALUES,
    Caller,
    ClientConnection,
    Lost,
    ProducerIdAndEpoch,
    Sent,
    fetch_values,
    list_offsets_values,
    metadata_values,
    produce_values,
    sealed,
)
from plimsoll_sim.hosts.payload import ident_of
from plimsoll_sim.oracle.partition_ghost import PartitionGhost, Violation
from plimsoll_wire.api_versions import ApiKey
from plimsoll_wire.batches import iter_headers


@dataclass(slots=True, kw_only=True)
class SentBatch:
    """A record batch, and the answer to the last attempt to send it; None while there is none."""

    sent: Sent
    at: TopicPartition
    acks: int
    by: Actor
    tries: int = 0
    answer: str | None = None
    shown: bool = False

    @property
    def name(self) -> str:
        return self.sent.ident.decode()

    def told(self) -> str:
        """Return a line about the batch's answer for people. A final answer is reported once."""
        self.shown = self.answer is not None
        return f"{self.name}: {self.answer or 'no answer yet'}"


class Instance:
    """One instance of a transactional producer. `sequences`: the next one of each partition."""

    def __init__(self, name: str, life: ProducerLife) -> None:
        self.name = name
        self.life = life
        self.sequences: dict[TopicPartition, int] = {}


class Actor(Caller):
    """A client of a scenario. It is an idempotent producer after its first `begin_producing`."""

    def __init__(self, name: str, world: World) -> None:
        super().__init__(name)
        self.world = world
        self._witness = world.witness
        self._process = Process(world.loop, name, name)
        self._process.start(_for_ever())
        world.client_processes.append(self._process)
        self._connections: dict[str, ClientConnection] = {}
        self._connecting: asyncio.Lock = asyncio.Lock()
        self._violation: Violation | None = None
        self.producer: ProducerIdAndEpoch | None = None
        self.sequence = 0

    def begin(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Start the coroutine in the client's process."""
        task: asyncio.Task[Any] = self._process.call(asyncio.ensure_future, work)
        return task

    def raise_violation(self) -> None:
        if self._violation is not None:
            raise self._violation

    async def connected(self, host: str) -> ClientConnection:
        async with self._connecting:
            known = self._connections.get(host)
            if known is None or known.stale:
                known = self._connections[host] = await self.connect(host)
            return known

    # --- producing --------------------------------------------------------------------------------

    async def begin_producing(self, host: str) -> list[str]:
        """Request a producer id, so that the client becomes an idempotent producer. Return lines
        about a failure, else []."""
        try:
            connection = await self.connected(host)
            reply = await self.ask(connection, ApiKey.INIT_PRODUCER_ID, 1, PRODUCER_ID_VALUES)
        except Lost as error:
            return [str(error)]
        self.producer = ProducerIdAndEpoch(int(reply.producer_id), int(reply.producer_epoch))
        return []

    def next_batch(self, name: str, records: int) -> Sent:
        sent = Sent(name.encode(), self.sequence, records, keyed=":" in name)
        self.sequence += records
        return sent

    def produce(self, batch: SentBatch, host: str) -> None:
        """Send the batch once. Its answer is stored when it comes, unless the batch was sent again
        meanwhile."""
        batch.answer = None
        batch.tries += 1
        self._witness.sent(batch.at, batch.sent.ident)
        self.begin(self._produce(batch, host, batch.tries))

    async def _produce(self, batch: SentBatch, host: str, number: int) -> None:
        answer = await self._try(batch, host)
        if batch.tries == number:
            batch.answer = answer

    async def _try(self, batch: SentBatch, host: str) -> str:
        values = produce_values(batch.at, batch.acks, sealed(batch.sent, self.producer))
        try:
            connection = await self.connected(host)
            frame = self.frame(ApiKey.PRODUCE, 9, values)
            future = connection.send(frame, answered=batch.acks != 0)
            if future is None:
                return "sent"
            reply = await self.answer(future, ApiKey.PRODUCE, 9)
        except Lost as error:
            return f"{error}, it may or may not be written"
        partition = reply.responses[0].partition_responses[0]
        code, offset = int(partition.error_code), int(partition.base_offset)
        if code != Code.NONE:
            return f"refused, {Code(code).name}"
        try:
            self._witness.acked(batch.at, batch.sent.ident, offset, batch.acks)
        except Violation as violation:
            self._violation = violation
        return f"acknowledged at {offset}"

    # --- reading ----------------------------------------------------------------------------------

    async def fetch(
        self, at: TopicPartition, host: str, offset: int, leader_epoch: int
    ) -> list[str]:
        """Return the records that a consumer reads from an offset on, as lines."""
        values = fetch_values(at, offset, leader_epoch, 0)
        try:
            connection = await self.connected(host)
            reply = await self.ask(connection, ApiKey.FETCH, 12, values)
        except Lost as error:
            return [str(error)]
        one = reply.responses[0].partitions[0]
        if int(one.error_code):
            return [Code(int(one.error_code)).name]
        records = bytes(one.records or b"")
        seen: list[str] = []
        at_byte = 0
        for header in iter_headers(records):
            ident = ident_of(records, at_byte)
            at_byte += header.length
            seen.append(f"{ident.decode()}@{header.base_offset}")
            self._saw(at, header.base_offset, ident)
        return [f"{' '.join(seen) or 'nothing'}  hw {int(one.high_watermark)}"]

    def _saw(self, at: TopicPartition, offset: int, ident: bytes) -> None:
        try:
            self._witness.consumed(at, offset, ident)
        except Violation as violation:
            self._violation = violation

    async def latest(self, at: TopicPartition, host: str) -> list[str]:
        """Return the log end that a consumer is told, as lines."""
        try:
            connection = await self.connected(host)
            values = list_offsets_values(at, -1)
            reply = await self.ask(connection, ApiKey.LIST_OFFSETS, 7, values)
        except Lost as error:
            return [str(error)]
        one = reply.topics[0].partitions[0]
        code, offset = int(one.error_code), int(one.offset)
        if code:
            return [Code(code).name]
        try:
            self._witness.latest(at, offset)
        except Violation as violation:
            self._violation = violation
        return [f"ends at {offset}"]

    async def epoch_end(
        self, at: TopicPartition, host: str, epoch: int, leader_epoch: int
    ) -> list[str]:
        """Return the end offset of a leader epoch (OffsetForLeaderEpoch), as lines."""
        partition = {
            "partition": at.partition,
            "current_leader_epoch": leader_epoch,
            "leader_epoch": epoch,
        }
        values = {"replica_id": -1, "topics": [{"topic": at.topic, "partitions": [partition]}]}
        try:
            connection = await self.connected(host)
            reply = await self.ask(connection, ApiKey.OFFSET_FOR_LEADER_EPOCH, 4, values)
        except Lost as error:
            return [str(error)]
        one = reply.topics[0].partitions[0]
        if int(one.error_code):
            return [Code(int(one.error_code)).name]
        return [f"LE {int(one.leader_epoch)} ends at {int(one.end_offset)}"]

    async def metadata(self, at: TopicPartition, host: str) -> list[str]:
        """Return the leader and the brokers in a broker's Metadata answer, as lines."""
        try:
            connection = await self.connected(host)
            reply = await self.ask(connection, ApiKey.METADATA, 9, metadata_values(at.topic))
        except Lost as error:
            return [str(error)]
        one = reply.topics[0].partitions[at.partition]
        code, epoch = int(one.error_code), int(one.leader_epoch)
        leads = Code(code).name if code else f"{int(one.leader_id)} leads LE {epoch}"
        listed = ",".join(str(int(broker.node_id)) for broker in reply.brokers)
        return [f"{leads}, of brokers {listed}"]

    async def delete_records(self, ghost: PartitionGhost, host: str, offset: int) -> list[str]:
        """Delete records below `offset`. Return the new log start, as lines."""
        try:
            connection = await self.connected(host)
            code, start = await one_off_requests.delete_records(self, connection, ghost, offset)
        except Lost as error:
            return [str(error)]
        return [f"refused, {Code(code).name}" if code else f"begins at {start}"]

    # --- administration ---------------------------------------------------------------------------

    async def elect(self, at: TopicPartition, host: str, kind: int) -> list[str]:
        """Request an election (ElectLeaders). Return the answer as lines."""
        partition = {"topic": at.topic, "partitions": [at.partition]}
        values = {"election_type": kind, "topic_partitions": [partition], "timeout": 10_000}
        try:
            connection = await self.connected(host)
            reply = await self.ask(connection, ApiKey.ELECT_LEADERS, 2, values)
        except Lost as error:
            return [str(error)]
        for topic in reply.replica_election_results:
            for one in topic.partition_result:
                if int(one.error_code):
                    return [f"refused: {one.error_message}"]
        return []

    async def create(
        self, name: str, host: str, replicas: list[list[int]], configs: dict[str, str]
    ) -> list[str]:
        """Create a topic with these replicas for each partition (CreateTopics). Return the answer
        as lines."""
        topic = {
            "name": name,
            "num_partitions": -1,
            "replication_factor": -1,
            "assignments": [
                {"partition_index": index, "broker_ids": ids} for index, ids in enumerate(replicas)
            ],
            "configs": [{"name": key, "value": value} for key, value in configs.items()],
        }
        try:
            connection = await self.connected(host)
            values = {"topics": [topic], "timeout": 10_000, "validate_only": False}
            reply = await self.ask(connection, ApiKey.CREATE_TOPICS, 5, values)
        except Lost as error:
            return [str(error)]
        return [f"refused: {one.error_message}" for one in reply.topics if int(one.error_code)]

    async def reassign(
        self, at: TopicPartition, host: str, replicas: list[int] | None
    ) -> list[str]:
        """Request other replicas of a partition; None: cancel its move
        (AlterPartitionReassignments). Return the answer as lines."""
        partition = {"partition_index": at.partition, "replicas": replicas}
        values = {"timeout": 10_000, "topics": [{"name": at.topic, "partitions": [partition]}]}
        try:
            connection = await self.connected(host)
            reply = await self.ask(connection, ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, values)
        except Lost as error:
            return [str(error)]
        answers = [one for topic in reply.responses for one in topic.partitions]
        return [f"refused: {one.error_message}" for one in answers if int(one.error_code)]


async def _for_ever() -> None:
    await asyncio.Event().wait()
