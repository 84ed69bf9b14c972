"""Checks that every input is processed exactly once: X7 of the protocol.

A processor's transaction holds the outputs of one input and the position behind it.
`ProcessedInputs` compares the fates of the outputs with the positions that the groups' coordinators
tell, and, at the end, with those in their state.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from plimsoll_broker.coordinator.coordinator_shard import ShardPhase
from plimsoll_broker.coordinator.group_shard import GroupShard
from plimsoll_core.cluster.topic_names import GROUP_OFFSETS
from plimsoll_core.ids import ProducerLife, TopicPartition
from plimsoll_sim.hosts.brokers import BrokerHost
from plimsoll_sim.oracle.committed import MetadataGhost
from plimsoll_sim.oracle.partition_ghost import Violation

_Of = tuple[ProducerLife, int]
"""A transaction: its producer, and its number there."""


class ProcessedInputs:
    """Implements `plimsoll_sim.hosts.processing_clients.ProcessedWitness`."""

    def __init__(self, ghost: MetadataGhost) -> None:
        self._ghost = ghost
        self._inputs: dict[_Of, tuple[str, int]] = {}
        # By group and position: the transaction with the outputs that are committed.
        self._committed: dict[tuple[str, int], _Of] = {}
        # By group: one past the greatest position of a transaction that a producer was told is
        # committed.
        self._told: dict[str, int] = {}
        # By broker: the shards that were seen last.
        self._shards: dict[int, list[GroupShard]] = {}
        self.processed = 0

    # --- what processors say ----------------------------------------------------------------------

    def asks(self, group: str) -> int:
        """Return the least position that an answer may tell from now on."""
        return self._told.get(group, 0)

    def positioned(self, group: str, least: int, position: int) -> None:
        """Check that a stable position is not before an input of a committed transaction."""
        if position < least and not self._is_excused(group):
            raise Violation("ExactlyOnce", f"{group}: is at {position}, {least} are committed")

    def processes(self, life: ProducerLife, number: int, group: str, position: int) -> None:
        self._inputs[life, number] = group, position

    def decided(self, of: _Of, *, commits: bool) -> None:
        """Note what the producer of a transaction is told."""
        if commits and of in self._inputs:
            group, position = self._inputs[of]
            self._told[group] = max(self._told.get(group, 0), position + 1)

    # --- what logs say ----------------------------------------------------------------------------

    def look(self, host: BrokerHost) -> None:
        node = host.node
        serving = None if node is None or host.manager is None else node._serving
        self._shards[host.id] = [] if serving is None else serving.coordinators.shards()

    def ended(self, of: _Of, *, commits: bool) -> None:
        """Check that no input has outputs of two committed transactions."""
        if not commits or of not in self._inputs:
            return
        group, position = self._inputs[of]
        before = self._committed.setdefault((group, position), of)
        if before != of and not self._is_excused(group):
            raise Violation("ExactlyOnce", f"{group}: input {position} by {before} and {of}")

    def _is_excused(self, group: str) -> bool:
        """Return True if committed records of the group's coordinator may be lost."""
        return self._ghost.coordinating(GROUP_OFFSETS, group) is None

    # --- at the end -------------------------------------------------------------------------------

    def unfinished(self) -> Iterator[str]:
        """Yield a sentence for each group with a position that is not behind all inputs with
        committed outputs, and these alone, or with an offset that is still pending."""
        self.processed = len(self._committed)
        for group in dict.fromkeys(group for group, _ in self._inputs.values()):
            stored_in = self._ghost.coordinating(GROUP_OFFSETS, group)
            if stored_in is None:
                continue
            position, pending = self._position(group, stored_in.name)
            done = sorted(at for name, at in self._committed if name == group)
            if done != list(range(position)):
                yield f"{group}: is at {position}, committed outputs are those of {done}"
            if pending:
                yield f"{group}: has an offset in an open transaction"

    def _position(self, group: str, at: TopicPartition) -> tuple[int, bool]:
        """Return the group's position in this partition, and True if an open transaction holds
        another."""
        for shard in self._of_all():
            if (shard.hosted.name, shard.hosted.key.index) == at:
                found = shard.state.groups.get(group)
                offsets = {} if found is None else next(iter(found.offsets.values()), {})
                position = offsets[0].offset if 0 in offsets else 0
                return position, found is not None and found.pending is not None
        return 0, False

    def _of_all(self) -> Iterable[GroupShard]:
        for shards in self._shards.values():
            yield from (one for one in shards if one.leads and one.phase is ShardPhase.ACTIVE)
