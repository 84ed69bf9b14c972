"""Simulated transactional producers, as real ones are: they find their coordinator, add partitions,
write, and commit or abort.

Each is a process of its own. Now and then one goes on as a new instance without a word, another
with the same transactional id beside it, or stays away until its transaction is overdue. An unknown
outcome of EndTxn is asked for again until it is certain. It reports to the `CoordinatedWitness`.
"""

from __future__ import annotations

import asyncio
import random
from typing import Any, NamedTuple, Protocol

from plimsoll_core.errors import Code
from plimsoll_core.ids import ProducerLife, TopicPartition
from plimsoll_sim.hosts.client_calls import (
    ClientConnection,
    Lost,
    ProducerIdAndEpoch,
    Sent,
    metadata_values,
    produce_values,
    sealed,
)
from plimsoll_sim.hosts.clients import Client, Habits, Witness
from plimsoll_wire.api_versions import ApiKey
from plimsoll_wire.batches import TRANSACTIONAL

TIMEOUT_MS = 4_000
_AGAIN = frozenset(
    {
        Code.CONCURRENT_TRANSACTIONS,
        Code.COORDINATOR_LOAD_IN_PROGRESS,
        Code.COORDINATOR_NOT_AVAILABLE,
        Code.NOT_COORDINATOR,
    }
)


class CoordinatedWitness(Protocol):
    """Receives reports of what transactional producers sent, and were told."""

    def given(self) -> dict[int, int]: ...
    def initialized(self, name: str, life: ProducerLife, given: dict[int, int]) -> None: ...
    def wrote(self, life: ProducerLife, number: int, at: TopicPartition, ident: bytes) -> None: ...
    def acked(self, life: ProducerLife, number: int, ident: bytes) -> None: ...
    def decided(self, life: ProducerLife, number: int, *, commits: bool) -> None: ...


class TransactionPlan(NamedTuple):
    """The transactional id of a producer, which it may share, and the partitions of its topic."""

    transactional_id: str
    partitions: int


class TransactionalClient(Client):
    """A transactional producer."""

    def __init__(
        self, habits: Habits, rng: random.Random, witness: Witness, told: CoordinatedWitness,
        plan: TransactionPlan,
    ) -> None:  # fmt: skip
        super().__init__(habits, rng, witness)
        self._told = told
        self.transactional_id, self._partitions = plan
        self._life: ProducerLife | None = None
        self._sequences: dict[int, int] = {}
        # The transaction that it is in, or was last in.
        self.number = self._made = 0
        # Connections by host; closed at any trouble.
        self._connections: dict[str, ClientConnection] = {}
        self._found: str | None = None
        # An end that was sent and not heard of: True to commit.
        self._ending: bool | None = None
        self.counts = {"committed": 0, "aborted": 0, "fenced": 0}

    # --- its life ---------------------------------------------------------------------------------

    async def session(self) -> None:
        try:
            await self._live()
        finally:
            self._hang_up()

    def _hang_up(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections, self._found = {}, None

    async def to(self, host: str) -> ClientConnection:
        """Return a connection to this host, the present one or a new one."""
        known = self._connections.get(host)
        if known is None or known.stale:
            known = self._connections[host] = await self.connect(host)
        return known

    async def _live(self) -> None:
        if self._life is None:
            await self._begin()
        if self._ending is not None:
            await self._end(self._ending)
        while not self.habits.stopped():
            await self.think()
            await self._transact()
            if self._rng.random() < 0.05:
                self._new_instance()
                return
        self.idle = True

    def _new_instance(self) -> None:
        """Forget everything but the name, as a process that was started again."""
        self._life, self._ending = None, None
        self._sequences = {}

    async def _begin(self) -> None:
        """Become the newest instance of the transactional id."""
        values = {
            "transactional_id": self.transactional_id,
            "transaction_timeout": TIMEOUT_MS,
            "producer_id": -1,
            "producer_epoch": -1,
        }
        given = self._told.given()
        reply = await self.ask_coordinator(ApiKey.INIT_PRODUCER_ID, 4, values)
        self.check(int(reply.error_code))
        self._life = ProducerLife(int(reply.producer_id), int(reply.producer_epoch))
        self._sequences = {}
        self._told.initialized(self.transactional_id, self._life, given)

    async def _transact(self) -> None:
        """Run one transaction. Any trouble begins a new instance, which aborts it."""
        chosen = sorted(
            self._rng.sample(range(self._partitions), self._rng.randint(1, self._partitions))
        )
        self.idle = False
        self.number += 1
        try:
            await self.begin_inputs()
            await self._add(chosen)
            for _ in range(self._rng.randint(1, 2)):
                for index in chosen:
                    await self._write(index)
                await self.think(0.5)
            if self._rng.random() < 0.05:
                await asyncio.sleep(self._rng.uniform(0.5, 1.5) * TIMEOUT_MS / 1000)
            await self.end_inputs()
            commits = self._rng.random() < 0.7
        except Lost:
            self._new_instance()
            raise
        await self._end(commits)

    async def begin_inputs(self) -> None:
        """Learn what the next transaction is about."""

    async def end_inputs(self) -> None:
        """Add to the transaction what it was about."""

    # --- requests ---------------------------------------------------------------------------------

    async def _coordinator(self) -> str:
        if self._found is None:
            connection = await self.to(self._rng.choice(self.habits.hosts))
            values = {"key_type": 1, "coordinator_keys": [self.transactional_id]}
            reply = await self.ask(connection, ApiKey.FIND_COORDINATOR, 4, values)
            (found,) = reply.coordinators
            if int(found.error_code):
                raise Lost(f"find coordinator: {found.error_code}")
            self._found = str(found.host)
        return self._found

    async def ask_coordinator(self, key: ApiKey, version: int, values: dict[str, Any]) -> Any:
        """Ask the coordinator once."""
        connection = await self.to(await self._coordinator())
        return await self.ask(connection, key, version, values)

    def check(self, code: int) -> None:
        """Raise Lost unless the code is NONE; a fenced instance begins anew."""
        if code == Code.NONE:
            return
        if code not in _AGAIN:
            self.counts["fenced"] += 1
            self._new_instance()
        raise Lost(f"{self.transactional_id}: {code}")

    @property
    def life(self) -> ProducerLife:
        assert self._life is not None, "it has begun"
        return self._life

    async def _add(self, chosen: list[int]) -> None:
        values = {
            "v3_and_below_transactional_id": self.transactional_id,
            "v3_and_below_producer_id": self.life.producer_id,
            "v3_and_below_producer_epoch": self.life.epoch,
            "v3_and_below_topics": [{"name": self.at.topic, "partitions": chosen}],
        }
        while True:
            reply = await self.ask_coordinator(ApiKey.ADD_PARTITIONS_TO_TXN, 3, values)
            (topic,) = reply.results_by_topic_v3_and_below
            code = int(topic.results_by_partition[0].partition_error_code)
            if code != Code.CONCURRENT_TRANSACTIONS:
                self.check(code)
                return
            await self.think()

    async def _write(self, index: int) -> None:
        """Write one batch, and send it again until it is acknowledged or refused for good."""
        at = TopicPartition(self.at.topic, index)
        self._made += 1
        ident = f"{self.name}/{self._made}".encode()
        sequence = self._sequences.get(index, 0)
        sent = Sent(ident, sequence, self._rng.randint(1, 3), self.habits.keyed)
        self._told.wrote(self.life, self.number, at, ident)
        self._witness.sent(at, ident)
        batch = sealed(sent, ProducerIdAndEpoch(*self.life), TRANSACTIONAL)
        values = produce_values(at, -1, batch)
        values["transactional_id"] = self.transactional_id
        for _ in range(5):
            code = await self._produce(at, values)
            if code == Code.NONE:
                self._told.acked(self.life, self.number, ident)
                self._sequences[index] = sequence + sent.records
                return
            if code == Code.INVALID_PRODUCER_EPOCH:
                self.counts["fenced"] += 1
                break
            await self.think()
        raise Lost("not written")

    async def _produce(self, at: TopicPartition, values: dict[str, Any]) -> int:
        """Send the batch to the partition's leader; return the error code, also of an unknown
        outcome."""
        try:
            connection = await self.to(await self._leader_of(at.partition))
            reply = await self.ask(connection, ApiKey.PRODUCE, 9, values)
        except Lost:
            self._hang_up()
            return int(Code.REQUEST_TIMED_OUT)
        return int(reply.responses[0].partition_responses[0].error_code)

    async def _leader_of(self, index: int) -> str:
        connection = await self.to(self._rng.choice(self.habits.hosts))
        reply = await self.ask(connection, ApiKey.METADATA, 9, metadata_values(self.at.topic))
        for topic in reply.topics:
            for partition in topic.partitions:
                if partition.partition_index == index and int(partition.leader_id) >= 0:
                    return f"broker-{int(partition.leader_id)}"
        raise Lost("no leader")

    async def _end(self, commits: bool) -> None:
        """Have the transaction decided; remember what was asked for until the answer is known."""
        self._ending = commits
        values = {
            "transactional_id": self.transactional_id,
            "producer_id": self.life.producer_id,
            "producer_epoch": self.life.epoch,
            "committed": commits,
        }
        life, number = self.life, self.number
        reply = await self.ask_coordinator(ApiKey.END_TXN, 3, values)
        self.check(int(reply.error_code))
        self._told.decided(life, number, commits=commits)
        self.counts["committed" if commits else "aborted"] += 1
        self._ending, self.idle = None, True
