"""Simulated Kafka clients: producers that retry as real ones do, and consumers that remember what
they have read.

Each client is a process of its own. It reports sent batches, acknowledgements and reads to the
`Witness`, and the checkers compare these with the committed logs.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from plimsoll_core.errors import Code
from plimsoll_core.ids import TopicPartition
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
from plimsoll_wire.api_versions import ApiKey
from plimsoll_wire.batches import iter_headers

WINDOW = 5
MANY_RECORDS = (9, 20)
"""Least and greatest number of records in some batches, so that segments do not all end alike."""
EARLIEST, LATEST = -2, -1
LEADER_EPOCH_AT = range(12, 16)
"""Positions in a batch of its leader epoch, which a leader overwrites whatever it is."""
FATAL_FOR_PRODUCER = frozenset(
    {Code.OUT_OF_ORDER_SEQUENCE_NUMBER, Code.INVALID_PRODUCER_EPOCH, Code.INVALID_RECORD}
)


class Witness(Protocol):
    """Receives reports of clients' requests and answers."""

    def sent(self, at: TopicPartition, ident: bytes) -> None: ...
    def acked(self, at: TopicPartition, ident: bytes, offset: int, acks: int) -> None: ...
    def damaged(self, at: TopicPartition, ident: bytes, code: int) -> None: ...
    def consumed(self, at: TopicPartition, offset: int, ident: bytes) -> None: ...
    def latest(self, at: TopicPartition, offset: int, epoch: int = -1, who: str = "") -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Habits:
    """Settings of a client. `stopped`: returns True once the client should end."""

    name: str
    topic: str
    partition: int
    hosts: tuple[str, ...]
    stopped: Callable[[], bool]
    acks: int = -1
    idempotent: bool = True
    think_ms: tuple[int, int] = (1, 300)
    records_max: int = 3
    keyed: bool = False
    deletes_groups: bool = False
    kept_ms: int | None = None
    """How long brokers keep the client's offsets, in milliseconds. Now and then it pauses for
    longer than that. None: it does not."""


class Client(Caller):
    """Base class of producers and consumers: finds the leader and runs sessions without end."""

    def __init__(self, habits: Habits, rng: random.Random, witness: Witness) -> None:
        super().__init__(habits.name)
        self.habits = habits
        self._rng = rng
        self._witness = witness
        self.leader_epoch = -1
        self.idle = True

    @property
    def at(self) -> TopicPartition:
        return TopicPartition(self.habits.topic, self.habits.partition)

    async def leader(self) -> str:
        """Return the leader's host, as the metadata of any broker states it."""
        connection = await self.connect(self._rng.choice(self.habits.hosts))
        try:
            values = metadata_values(self.habits.topic)
            reply = await self.ask(connection, ApiKey.METADATA, 9, values)
        finally:
            connection.close()
        for topic in reply.topics:
            for partition in topic.partitions:
                found = partition.partition_index == self.habits.partition
                if found and int(partition.leader_id) >= 0:
                    self.leader_epoch = int(partition.leader_epoch)
                    return f"broker-{int(partition.leader_id)}"
        raise Lost("no leader")

    async def think(self, factor: float = 1.0) -> None:
        await asyncio.sleep(self._rng.randint(*self.habits.think_ms) * factor / 1000)

    @property
    def over(self) -> bool:
        """Return True if the client is stopped and has nothing left to do."""
        return self.habits.stopped() and self.idle

    async def forever(self) -> None:
        """Run sessions one after another until the client is over."""
        while not self.over:
            try:
                await self.session()
            except Lost:
                await asyncio.sleep(self._rng.uniform(0.02, 0.4))

    async def session(self) -> None:
        raise NotImplementedError


class Producer(Client):
    """Writes batches. An idempotent producer resends in order until the outcome is certain; others
    never do."""

    def __init__(self, habits: Habits, rng: random.Random, witness: Witness) -> None:
        super().__init__(habits, rng, witness)
        self._producer: ProducerIdAndEpoch | None = None
        self._sequence = 0
        self._unacked: deque[Sent] = deque()
        self._made = 0
        self._gap = False
        # Answers to batches that were changed on the way.
        self._damaged: dict[asyncio.Future[bytes], None] = {}
        self.damages: deque[random.Random] = deque()
        """For each of the next batches to be damaged on the way: the choice of the damage."""
        self.wants = True

    async def session(self) -> None:
        connection = await self.connect(await self.leader())
        try:
            if self.habits.idempotent and self._producer is None:
                await self._begin(connection)
            await self._send_all(connection)
        finally:
            connection.close()
            if not self.habits.idempotent:
                self._unacked.clear()
            elif self._gap:
                self._next_epoch()
            self.idle = not self._unacked

    async def _begin(self, connection: ClientConnection) -> None:
        reply = await self.ask(connection, ApiKey.INIT_PRODUCER_ID, 1, PRODUCER_ID_VALUES)
        if int(reply.error_code):
            raise Lost(f"no producer id: {reply.error_code}")
        self._producer = ProducerIdAndEpoch(int(reply.producer_id), int(reply.producer_epoch))
        self._sequence = 0
        self._unacked.clear()

    async def _send_all(self, connection: ClientConnection) -> None:
        in_flight: deque[tuple[Sent, asyncio.Future[bytes]]] = deque()
        for one in self._unacked:
            self._send(connection, one, in_flight)
        while True:
            while len(self._unacked) < WINDOW and not self.habits.stopped():
                self._send(connection, self._next(), in_flight)
                if self._rng.random() < 0.5:
                    break
            if in_flight:
                await self._settle(in_flight)
            elif self.habits.stopped():
                return
            await self.think()

    def _next(self) -> Sent:
        records = self._rng.randint(1, self.habits.records_max)
        if self._rng.random() < 0.3:
            records = self._rng.choice(MANY_RECORDS)
        self._made += 1
        ident = f"{self.habits.name}/{self._made}".encode()
        sent = Sent(ident, self._sequence, records, self.habits.keyed)
        self._sequence += records
        self._unacked.append(sent)
        self.idle = False
        self._witness.sent(self.at, sent.ident)
        return sent

    def _send(
        self,
        connection: ClientConnection,
        sent: Sent,
        in_flight: deque[tuple[Sent, asyncio.Future[bytes]]],
    ) -> None:
        acks = self.habits.acks
        batch = sealed(sent, self._producer)
        damaged = bool(self.damages)
        if damaged:
            batch = with_flipped_bit(batch, self.damages.popleft())
        values = produce_values(self.at, acks, batch)
        future = connection.send(self.frame(ApiKey.PRODUCE, 9, values), answered=acks != 0)
        if future is not None:
            in_flight.append((sent, future))
            if damaged:
                self._damaged[future] = None
        else:
            self._unacked.remove(sent)

    async def _settle(self, in_flight: deque[tuple[Sent, asyncio.Future[bytes]]]) -> None:
        """Handle the oldest answer. If it is a refusal, handle those to the following batches
        too."""
        code = await self._answered(*in_flight.popleft())
        if code == Code.NONE:
            return
        if self._producer is not None and code in FATAL_FOR_PRODUCER:
            # It is unknown if the batches in flight were written: start again with another
            # producer id.
            self._producer = None
            self._unacked.clear()
            self.idle = True
        elif self._producer is not None:
            while in_flight:
                later = await self._answered(*in_flight.popleft())
                self._gap = self._gap or later == Code.OUT_OF_ORDER_SEQUENCE_NUMBER
        raise Lost(f"produce: {code}")

    async def _answered(self, sent: Sent, future: asyncio.Future[bytes]) -> int:
        reply = await self.answer(future, ApiKey.PRODUCE, 9)
        partition = reply.responses[0].partition_responses[0]
        code = int(partition.error_code)
        if future in self._damaged:
            del self._damaged[future]
            self._witness.damaged(self.at, sent.ident, code)
        if code == Code.NONE:
            self._unacked.remove(sent)
            self.idle = not self._unacked
            self._witness.acked(self.at, sent.ident, int(partition.base_offset), self.habits.acks)
        return code

    def _next_epoch(self) -> None:
        """Start the next producer epoch, as librdkafka does when batches after a refused one are
        out of order: all unacknowledged batches are sent again as new ones, even if some of them
        were written."""
        known = self._producer
        assert known is not None
        self._producer = known._replace(epoch=known.epoch + 1)
        self._sequence, self._gap = 0, False
        for sent in self._unacked:
            sent.sequence = self._sequence
            self._sequence += sent.records


def with_flipped_bit(batch: bytes, rng: random.Random) -> bytes:
    """Return the batch with one bit changed, anywhere but in its leader epoch."""
    damaged = bytearray(batch)
    at = rng.choice([one for one in range(len(batch)) if one not in LEADER_EPOCH_AT])
    damaged[at] ^= 1 << rng.randrange(8)
    return bytes(damaged)


class Consumer(Client):
    """Reads one partition from its start, and asks for the log end again and again. It remembers
    both."""

    def __init__(self, habits: Habits, rng: random.Random, witness: Witness) -> None:
        super().__init__(habits, rng, witness)
        self.offset = 0

    async def session(self) -> None:
        connection = await self.connect(await self.leader())
        try:
            while not self.habits.stopped():
                if self._rng.random() < 0.2:
                    await self._ask_end(connection)
                await self._fetch(connection)
                await self.think()
        finally:
            connection.close()

    async def _ask_end(self, connection: ClientConnection) -> None:
        offset, epoch = await self._offset(connection, LATEST)
        self._witness.latest(self.at, offset, epoch, self.habits.name)

    async def _offset(self, connection: ClientConnection, which: int) -> tuple[int, int]:
        """Return the offset of the log start or log end (as `which` asks), and the leader epoch
        there."""
        values = list_offsets_values(self.at, which)
        reply = await self.ask(connection, ApiKey.LIST_OFFSETS, 7, values)
        one = reply.topics[0].partitions[0]
        if int(one.error_code):
            raise Lost(f"list offsets: {one.error_code}")
        return int(one.offset), int(one.leader_epoch)

    async def _begin_anew(self, connection: ClientConnection) -> None:
        """Begin again at the log start, because the next record is missing: it was removed, or the
        log ends before it, which is allowed only if committed records were lost."""
        start, _ = await self._offset(connection, EARLIEST)
        if start <= self.offset:
            self._witness.latest(self.at, -1)
        self.offset = start

    async def _fetch(self, connection: ClientConnection) -> None:
        epoch = self.leader_epoch if self._rng.random() < 0.5 else -1
        wait_ms = self._rng.choice((0, 100, 500))
        values = fetch_values(self.at, self.offset, epoch, wait_ms)
        reply = await self.ask(connection, ApiKey.FETCH, 12, values)
        one = reply.responses[0].partitions[0]
        code = int(one.error_code)
        if code == Code.OFFSET_OUT_OF_RANGE:
            await self._begin_anew(connection)
        if code:
            raise Lost(f"fetch: {code}")
        records = bytes(one.records or b"")
        at = 0
        for header in iter_headers(records):
            ident = ident_of(records, at)
            at += header.length
            if header.last_offset >= self.offset:
                if header.count and not header.is_control:
                    self._witness.consumed(self.at, header.base_offset, ident)
                self.offset = header.next_offset
