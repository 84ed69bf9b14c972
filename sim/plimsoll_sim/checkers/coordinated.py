"""Checks transactions that coordinators decide: X1, X4 to X6 and X8 of the protocol.

`CoordinatedChecker` gets the reports of transactional producers, looks at each shard of a broker
that did something (X8: its state is its log's), and at each transaction that a committed marker
ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from plimsoll_broker.coordinator.coordinator_shard import ShardPhase
from plimsoll_broker.coordinator.transaction_shard import TransactionShard
from plimsoll_core.cluster.topic_names import TRANSACTION_STATE
from plimsoll_core.ids import ProducerLife, TopicPartition
from plimsoll_core.transactions.invariants import unsound
from plimsoll_core.transactions.records import TransactionStored
from plimsoll_core.transactions.state import TransactionsState, apply, skip
from plimsoll_sim.checkers.processed import ProcessedInputs
from plimsoll_sim.hosts.brokers import BrokerHost
from plimsoll_sim.oracle.committed import MetadataGhost
from plimsoll_sim.oracle.partition_ghost import PartitionGhost, TransactionEnd, Violation
from plimsoll_wire.batches import HEADER_SIZE, iter_headers
from plimsoll_wire.record_sets import iter_records
from plimsoll_wire.transaction_records import decode_transaction_record
from plimsoll_wire.versioned_fields import UnknownKeyedRecord


@dataclass(slots=True)
class _Transaction:
    """One transaction as its producer knows it. `batches`: partition by name of the batch; `acked`:
    names of acknowledged ones; `commits`: the decision that the producer was told, None if it was
    told none."""

    life: ProducerLife
    batches: dict[bytes, TopicPartition] = field(default_factory=dict)
    acked: dict[bytes, None] = field(default_factory=dict)
    commits: bool | None = None
    number: int = 0


@dataclass(slots=True)
class _WatchedShard:
    """An independent replay of a shard's log."""

    shard: TransactionShard
    state: TransactionsState = field(default_factory=TransactionsState)
    read_to: int = 0


class CoordinatedChecker:
    """Implements `plimsoll_sim.hosts.transactional_clients.CoordinatedWitness`."""

    def __init__(self, ghost: MetadataGhost) -> None:
        self._ghost = ghost
        self._transactions: dict[tuple[ProducerLife, int], _Transaction] = {}
        self._of_batch: dict[bytes, _Transaction] = {}
        # By producer id: the newest epoch that an instance was given.
        self._newest: dict[int, int] = {}
        self._given: dict[ProducerLife, None] = {}
        # By producer id: the transactional id that has it.
        self._owners: dict[int, str] = {}
        self._watched: dict[int, dict[int, _WatchedShard]] = {}
        self.decisions = 0
        self.processed = ProcessedInputs(ghost)

    # --- what producers say -----------------------------------------------------------------------

    def given(self) -> dict[int, int]:
        """Return the newest epoch given so far of each producer id."""
        return dict(self._newest)

    def initialized(self, name: str, life: ProducerLife, given: dict[int, int]) -> None:
        """Check X4: no two instances get the same producer id and epoch, and each gets a greater
        epoch than were given (`given`) before it asked."""
        if self._is_excused(name):
            return
        if life in self._given or life.epoch <= given.get(life.producer_id, -1):
            raise Violation("Fenced", f"{name} got {life}, and these were given: {given}")
        if self._owners.setdefault(life.producer_id, name) != name:
            raise Violation("Fenced", f"{name} got {life}, and its id belongs to another name")
        self._given[life] = None
        newest = self._newest.get(life.producer_id, -1)
        self._newest[life.producer_id] = max(newest, life.epoch)

    def _is_excused(self, name: str) -> bool:
        """Return True if committed records of the id's coordinator may be lost."""
        return self._ghost.coordinating(TRANSACTION_STATE, name) is None

    def _is_forgotten(self, found: _Transaction) -> bool:
        """Return True if the coordinator of this transaction may have forgotten its decision."""
        name = self._owners.get(found.life.producer_id)
        return name is not None and self._is_excused(name)

    def wrote(self, life: ProducerLife, number: int, at: TopicPartition, ident: bytes) -> None:
        found = self._transactions.setdefault((life, number), _Transaction(life, number=number))
        found.batches[ident] = at
        self._of_batch[ident] = found

    def acked(self, life: ProducerLife, number: int, ident: bytes) -> None:
        self._transactions[life, number].acked[ident] = None

    def decided(self, life: ProducerLife, number: int, *, commits: bool) -> None:
        """Check X5: what its producer is told agrees with every marker that is committed."""
        self.decisions += 1
        self.processed.decided((life, number), commits=commits)
        found = self._transactions.get((life, number))
        if found is None:
            return  # it wrote nothing
        found.commits = commits
        for ident, at in found.batches.items():
            ghost = self._ghost.by_name.get(at)
            fate = None if ghost is None else ghost.fates.get(ghost.idents.get(ident, -1))
            if fate is not None and ghost is not None:
                self._check_fate(ghost, found, ident, commits=fate)

    # --- what logs say ----------------------------------------------------------------------------

    def ended(self, ghost: PartitionGhost, bases: list[int], end: TransactionEnd) -> None:
        """Check X4 and X5 of batches of a transaction that a committed marker has ended."""
        for base in bases:
            batch = ghost.committed[ghost.index[base]]
            found = self._of_batch.get(batch.ident)
            if found is None or ghost.unclean_epoch >= 0:
                continue
            if self._is_forgotten(found):
                continue
            self._check_fate(ghost, found, batch.ident, commits=end.commits)
            self.processed.ended((found.life, found.number), commits=end.commits)
            if end.commits and end.epoch != found.life.epoch:
                raise Violation("Fenced", f"{ghost.name}: {end} commits {batch.ident!r}")

    def _check_fate(
        self, ghost: PartitionGhost, found: _Transaction, ident: bytes, *, commits: bool
    ) -> None:
        if ghost.unclean_epoch >= 0 or self._is_forgotten(found):
            return
        told = {True: "committed", False: "aborted"}
        if found.commits is not None and found.commits is not commits:
            raise Violation(
                "EndedOnce",
                f"{ghost.name}: {ident!r} of {found.life} is {told[commits]}, and its producer was "
                f"told that it is {told[found.commits]}",
            )

    # --- shards -----------------------------------------------------------------------------------

    def look(self, host: BrokerHost) -> None:
        """Check each active shard of a broker: its state equals a replay of its log (X8), and each
        record follows from the one before."""
        self.processed.look(host)
        node = host.node
        serving = None if node is None or host.manager is None else node._serving
        served = None if serving is None else serving.coordinators.transactions
        shards = [] if served is None else served.coordinators.shards()
        known, watched = self._watched.get(host.id, {}), {}
        for shard in shards:
            if shard.phase is ShardPhase.ACTIVE and shard.leads:
                one = known.get(id(shard))
                watched[id(shard)] = one if one and one.shard is shard else _WatchedShard(shard)
                self._look_at(watched[id(shard)])
        self._watched[host.id] = watched

    def _look_at(self, watched: _WatchedShard) -> None:
        shard, log = watched.shard, watched.shard.hosted.log
        end = log.log_end_offset
        if end == watched.read_to:
            return
        if not watched.read_to:
            watched.read_to = log.log_start_offset
        for offset, key, value in _records(shard, watched.read_to, end):
            record = decode_transaction_record(key, value)
            if isinstance(record, UnknownKeyedRecord):
                continue
            before = watched.state.find(record.transactional_id)
            apply(watched.state, record, offset)
            if isinstance(record, TransactionStored) and offset >= shard.leader.start_offset:
                for sentence in unsound(before, record):
                    raise Violation("OneWriter", f"{shard.hosted!r} at {offset}: {sentence}")
        watched.read_to = end
        skip(watched.state, end - 1)
        if shard.state.end == end and watched.state.ids != shard.state.ids:
            raise Violation(
                "OneWriter",
                f"{shard.hosted!r} has {shard.state.ids}, its log says {watched.state.ids}",
            )

    # --- at the end -------------------------------------------------------------------------------

    def unfinished(self, is_led: Callable[[PartitionGhost], int | None]) -> Iterator[str]:
        """Yield a sentence for each transaction that is not whole: X1 (all of its batches have one
        fate, that of its decision) and X6 (no partition's readers are held up). `is_led`: returns
        the last stable offset of a partition's leader."""
        for ghost in self._ghost.by_name.values():
            stable = is_led(ghost)
            if stable is not None and stable < ghost.true_high_watermark:
                yield f"{ghost.name}: LSO {stable} of {ghost.true_high_watermark}"
        yield from self.processed.unfinished()
        for found in self._transactions.values():
            if not self._is_forgotten(found):
                yield from self._torn(found)

    def _torn(self, found: _Transaction) -> Iterator[str]:
        """Yield a sentence for each way in which a transaction is not whole. Say nothing of one in
        a partition that has lost or deleted records."""
        fates, lost = set(), []
        for ident, at in found.batches.items():
            held = self._ghost.by_name.get(at)
            if held is None or held.unclean_epoch >= 0 or held.made_again or held.start:
                return
            offset = held.idents.get(ident)
            if offset is not None:
                fates.add(held.fates.get(offset))
            elif ident in found.acked and found.commits:
                lost.append(f"{at}: {ident!r} is lost")
        yield from lost
        if len(fates) > 1 or (found.commits is not None and fates - {found.commits}):
            yield f"{found.life}: {sorted(map(str, fates))}, decided: {found.commits}"


def _records(
    shard: TransactionShard, offset: int, end: int
) -> Iterator[tuple[int, bytes | None, bytes | None]]:
    while offset < end:
        # A read ends with its segment.
        data = bytes(shard.hosted.log.read(offset, 2**30, end))
        position, first = 0, offset
        for header in iter_headers(data):
            body = data[position + HEADER_SIZE : position + header.length]
            position += header.length
            offset = header.next_offset
            yield from (one for one in iter_records(header, body) if one[0] >= first)
        assert offset > first, "the log ends before its end"
