"""Simulated consumers that read committed transactions only, as Kafka's do: they leave out the
batches of the aborted transactions that a reply lists. Now and then one stops, and resumes at any
offset that it has read.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol

from plimsoll_core.errors import Code
from plimsoll_core.ids import TopicPartition
from plimsoll_sim.hosts.client_calls import (
    ClientConnection,
    Lost,
    fetch_values,
    list_offsets_values,
)
from plimsoll_sim.hosts.clients import LATEST, Consumer, Habits, Witness
from plimsoll_sim.hosts.payload import ident_of
from plimsoll_wire.api_versions import ApiKey
from plimsoll_wire.batches import BatchHeader, iter_headers
from plimsoll_wire.control_records import read_end_marker
from plimsoll_wire.fetch import READ_COMMITTED

RESUME_SHARE = 0.1
"""Probability that a reader goes back before a fetch."""


class TransactionWitness(Protocol):
    """Receives reports of the transactional batches that a reader was shown, or has left out."""

    def shown(self, at: TopicPartition, offset: int, ident: bytes) -> None: ...
    def left_out(self, at: TopicPartition, offset: int, ident: bytes) -> None: ...


class Judged(NamedTuple):
    """A batch of a reply. `ident`: its name, empty for a marker or a batch without records.
    `left_out`: True if its transaction is one of those that the reply lists as aborted."""

    header: BatchHeader
    ident: bytes
    left_out: bool


def judged(reply: Any) -> Iterator[Judged]:
    """Yield the batches of one partition in a reply, as Kafka's consumer takes them."""
    listed = ((each.first_offset, each.producer_id) for each in reply.aborted_transactions)
    begins, aborting = deque(sorted(listed)), set[int]()
    records, at = bytes(reply.records or b""), 0
    for header in iter_headers(records):
        batch, at = at, at + header.length
        while begins and begins[0][0] <= header.last_offset:
            aborting.add(begins.popleft()[1])
        ident = b""
        if header.is_control:
            marker = read_end_marker(header, records[batch:at])
            if marker is not None and not marker.commits:
                aborting.discard(header.producer_id)
        elif header.count:
            ident = ident_of(records, batch)
        yield Judged(header, ident, header.is_transactional and header.producer_id in aborting)


class CommittedReader(Consumer):
    """Reads one partition up to its last stable offset."""

    def __init__(
        self,
        habits: Habits,
        rng: random.Random,
        witness: Witness,
        transactions: TransactionWitness,
    ) -> None:
        super().__init__(habits, rng, witness)
        self._transactions = transactions

    async def _ask_end(self, connection: ClientConnection) -> None:
        values = {**list_offsets_values(self.at, LATEST), "isolation_level": READ_COMMITTED}
        reply = await self.ask(connection, ApiKey.LIST_OFFSETS, 7, values)
        one = reply.topics[0].partitions[0]
        if int(one.error_code):
            raise Lost(f"list offsets: {one.error_code}")
        self._witness.latest(self.at, int(one.offset), int(one.leader_epoch), self.habits.name)

    async def _fetch(self, connection: ClientConnection) -> None:
        if self._rng.random() < RESUME_SHARE:
            self.offset = self._rng.randint(0, self.offset)
        values = fetch_values(self.at, self.offset, -1, self._rng.choice((0, 100, 500)))
        values["isolation_level"] = READ_COMMITTED
        values["max_bytes"] = self._rng.choice((1, 300, 2**20))
        reply = await self.ask(connection, ApiKey.FETCH, 12, values)
        one = reply.responses[0].partitions[0]
        code = int(one.error_code)
        if code == Code.OFFSET_OUT_OF_RANGE:
            await self._begin_anew(connection)
        if code:
            raise Lost(f"fetch: {code}")
        self._read(one)

    def _read(self, reply: Any) -> None:
        for one in judged(reply):
            header = one.header
            if one.ident and header.last_offset >= self.offset:
                self._witness.consumed(self.at, header.base_offset, one.ident)
                if header.is_transactional:
                    told = self._transactions.left_out if one.left_out else self._transactions.shown
                    told(self.at, header.base_offset, one.ident)
            self.offset = max(self.offset, header.next_offset)
