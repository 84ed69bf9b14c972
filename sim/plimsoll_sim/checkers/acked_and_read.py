"""Checks the clients' answers against the committed logs: I6, I17 and I18 of the protocol.

I16 is checked in `oracle.acked_not_lost`, and here again for late acknowledgements.
"""

from __future__ import annotations

from plimsoll_core.ids import TopicPartition
from plimsoll_sim.oracle.acked_not_lost import check_lost_acks
from plimsoll_sim.oracle.committed import MetadataGhost
from plimsoll_sim.oracle.partition_ghost import PartitionGhost, Violation


class ClientChecker:
    """Checks clients' answers. Implements `plimsoll_sim.hosts.clients.Witness`."""

    def __init__(self, ghost: MetadataGhost) -> None:
        self._ghost = ghost
        self.sent_batches = 0
        self.acked_batches = 0
        self.consumed_batches = 0

    def _find(self, at: TopicPartition) -> PartitionGhost | None:
        return self._ghost.by_name.get(at)

    def sent(self, at: TopicPartition, ident: bytes) -> None:
        self.sent_batches += 1

    def acked(self, at: TopicPartition, ident: bytes, offset: int, acks: int) -> None:
        """Check I17: an acknowledged record is committed, at the offset that the client was
        told."""
        self.acked_batches += 1
        ghost = self._find(at)
        if acks != -1 or ghost is None or self._ghost.topics_recreated:
            return
        if ident not in ghost.idents and ident not in ghost.lost:
            raise Violation(
                "NoCommitBeforeQuorum",
                f"{at}: {ident!r} was acknowledged at {offset} and is not committed (committed up "
                f"to {ghost.true_high_watermark})",
            )
        base = ghost.idents.get(ident, ghost.lost.get(ident))
        if offset >= 0 and base != offset:
            raise Violation("NoCommitBeforeQuorum", f"{at}: {ident!r} is at {base}, told {offset}")
        if ident in ghost.lost and ident not in ghost.idents:
            # Acknowledged before the unclean election, heard of after it.
            check_lost_acks(ghost, [ident])
        ghost.acked[ident] = offset

    def consumed(self, at: TopicPartition, offset: int, ident: bytes) -> None:
        """Check I18: a record that was read is the committed one at its offset, unless an unclean
        election removed it since."""
        self.consumed_batches += 1
        ghost = self._find(at)
        if ghost is None or self._ghost.topics_recreated:
            return
        if ghost.idents.get(ident) == offset or ghost.lost.get(ident) == offset:
            return
        raise Violation(
            "ConsistentRead",
            f"{at}: {ident!r} was read at {offset}, committed at {ghost.idents.get(ident)}",
        )

    def latest(self, at: TopicPartition, offset: int, epoch: int = -1, who: str = "") -> None:
        """Check I6: the log end that a client is told is neither above the committed end nor below
        an earlier answer. `epoch`: the leader epoch of the answer; `who`: the client, which sends
        its next request only after an answer."""
        ghost = self._find(at)
        if ghost is None or ghost.unclean_epoch >= 0 or self._ghost.topics_recreated:
            return
        if offset == -1 or offset > ghost.true_high_watermark:
            raise Violation(
                "ConsistentRead",
                f"{at}: a client was told of {offset}, committed {ghost.true_high_watermark}",
            )
        before = ghost.told.get(who, (-1, 0))
        if epoch >= before[0]:
            if who and offset < before[1]:
                raise Violation(
                    "HWMonotone",
                    f"{at}: {who} was told of {before[1]} in term {before[0]}, then of {offset} in "
                    f"term {epoch}",
                )
            ghost.told[who] = (epoch, offset)
