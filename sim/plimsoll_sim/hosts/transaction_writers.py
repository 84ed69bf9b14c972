"""Simulated writers of transactions: they append batches and end markers to a broker that leads a
partition, or still believes so.

There is no coordinator, so the writers call the broker's own rule in its process
(`transactional_appends`). Each writer has one producer id, writes to all partitions of a topic, and
decides for each of them alone how its transaction ends. After a refused sequence or epoch, and now
and then, it goes on as the next instance: every partition gets an abort of the next epoch first.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

from plimsoll_broker.replication.hosted_partitions import Hosted
from plimsoll_broker.replication.replica_manager import ReplicaManager
from plimsoll_broker.replication.transactional_appends import (
    append_batch,
    append_marker,
)
from plimsoll_core.errors import Code
from plimsoll_core.ids import ProducerLife
from plimsoll_core.replica.replica_values import Append, Duplicate
from plimsoll_sim.engine.loop import SimLoop
from plimsoll_sim.hosts.brokers import BrokerHost
from plimsoll_sim.hosts.client_calls import ProducerIdAndEpoch, Sent, sealed
from plimsoll_wire.batches import TRANSACTIONAL
from plimsoll_wire.control_records import EndMarker

FIRST_PRODUCER_ID = 2**50
"""Producer id of the first writer, which no broker hands out."""
BATCH_SHARE, RETRY_SHARE, COMMIT_SHARE, FENCE_SHARE = 0.6, 0.1, 0.6, 0.03
_REFUSED_FOR_GOOD = (Code.OUT_OF_ORDER_SEQUENCE_NUMBER, Code.INVALID_PRODUCER_EPOCH)


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterPlan:
    """Settings of a writer. `stopped`: returns True once the writer should end."""

    number: int
    topic: str
    partitions: int
    keyed: bool
    think_ms: tuple[int, int]
    stopped: Callable[[], bool]


class LeaderHere(NamedTuple):
    """A broker's replica of a partition that leads, or believes so, and its manager."""

    manager: ReplicaManager
    hosted: Hosted


@dataclass(slots=True)
class _Part:
    """What a writer knows of one partition. `must_end`: True until a marker of the present epoch is
    appended; `last`: the newest batch, to be sent again."""

    sequence: int = 0
    begun: bool = False
    must_end: bool = False
    last: bytes | None = None


class TransactionWriter:
    """One writer; `begin` starts it."""

    def __init__(
        self, plan: WriterPlan, loop: SimLoop, hosts: Mapping[int, BrokerHost], rng: random.Random
    ) -> None:
        self._plan = plan
        self._loop = loop
        self._hosts = hosts
        self._rng = rng
        self._epoch = self._made = 0
        self._parts = [_Part() for _ in range(plan.partitions)]
        self.counts = {"batches": 0, "commits": 0, "aborts": 0}

    def begin(self) -> None:
        """Write after a while, and again, until the writer is stopped."""
        self._loop.later(1_000 * self._rng.randint(*self._plan.think_ms), self._act)

    def _act(self) -> None:
        if self._plan.stopped():
            return
        self.begin()
        index = self._rng.randrange(self._plan.partitions)
        leaders = [host for host in self._hosts.values() if self._leads(host, index) is not None]
        if leaders:
            host = self._rng.choice(leaders)
            assert host.process is not None, "it leads"
            write = partial(self._write, host, index)
            self._loop.call_soon(write, context=host.process.context)

    def _leads(self, host: BrokerHost, index: int) -> LeaderHere | None:
        manager = host.manager
        hosted = None if manager is None else manager.by_name(self._plan.topic, index)
        if manager is None or hosted is None or hosted.replica.leader is None:
            return None
        return LeaderHere(manager, hosted)

    def _write(self, host: BrokerHost, index: int) -> None:
        """Write to a partition. Runs in the broker's process."""
        here = self._leads(host, index)
        if here is None:
            return
        if self._rng.random() < FENCE_SHARE:
            self._next_instance()
        part = self._parts[index]
        if part.must_end or (part.begun and self._rng.random() >= BATCH_SHARE):
            self._end(here, part)
        elif part.last is not None and self._rng.random() < RETRY_SHARE:
            append_batch(*here, bytearray(part.last))
        else:
            self._append(here, part)

    def _append(self, here: LeaderHere, part: _Part) -> None:
        self._made += 1
        records = self._rng.randint(1, 3)
        ident = f"writer-{self._plan.number}/{self._made}".encode()
        sent = Sent(ident, part.sequence, records, self._plan.keyed)
        producer = ProducerIdAndEpoch(self._producer.producer_id, self._epoch)
        batch = sealed(sent, producer, TRANSACTIONAL)
        placed = append_batch(*here, bytearray(batch))
        if isinstance(placed, Append):
            part.sequence += records
            part.begun, part.last = True, batch
            self.counts["batches"] += 1
        elif not isinstance(placed, Duplicate) and placed in _REFUSED_FOR_GOOD:
            self._next_instance()

    def _end(self, here: LeaderHere, part: _Part) -> None:
        commits = not part.must_end and self._rng.random() < COMMIT_SHARE
        now_ms = time.time_ns() // 1_000_000
        marker = EndMarker(commits, self._epoch)
        placed = append_marker(*here, self._producer, marker, now_ms)
        if isinstance(placed, Append):
            part.begun = part.must_end = False
            self.counts["commits" if commits else "aborts"] += 1

    @property
    def _producer(self) -> ProducerLife:
        return ProducerLife(FIRST_PRODUCER_ID + self._plan.number, self._epoch)

    def _next_instance(self) -> None:
        self._epoch += 1
        self._parts = [replace(_Part(), must_end=True) for _ in self._parts]
