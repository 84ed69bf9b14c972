"""Checks the clients' answers against the committed logs: I6, I17 and I18 of the protocol.

I16 is checked in `oracle.acked_not_lost`, and here again for late acknowledgements.
"""

from __future__ import annotations

from plimsoll_core.errors import Code
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
        self.damaged_batches = 0
        self.consumed_batches = 0

    def sent(self, at: TopicPartition, ident: bytes) -> None:
        self.sent_batches += 1

    def acked(self, at: TopicPartition, ident: bytes, offset: int, acks: int) -> None:
        """Check I17: an acknowledged record is committed, at the offset that the client was
        told."""
        self.acked_batches += 1
        served = self._ghost.ever_named(at)
        if acks != -1 or not served:
            return
        known = [one for one in served if ident in one.idents or ident in one.lost]
        if not known:
            ends = [one.true_high_watermark for one in served]
            raise Violation(
                "NoCommitBeforeQuorum",
                f"{at}: {ident!r} was acknowledged at {offset} and is not committed (committed up "
                f"to {ends})",
            )
        bases = [one.idents.get(ident, one.lost.get(ident)) for one in known]
        if offset >= 0 and offset not in bases:
            raise Violation("NoCommitBeforeQuorum", f"{at}: {ident!r} is at {bases}, told {offset}")
        ghost = known[bases.index(offset) if offset >= 0 else 0]
        if ident in ghost.lost and ident not in ghost.idents:
            # Acknowledged before the unclean election, heard of after it.
            check_lost_acks(ghost, [ident])
        ghost.acked[ident] = offset

    def damaged(self, at: TopicPartition, ident: bytes, code: int) -> None:
        """Check that a batch with a bit that was changed on the way is refused."""
        self.damaged_batches += 1
        if code == Code.NONE:
            raise Violation("BatchIntact", f"{at}: {ident!r} was damaged and is acknowledged")

    def consumed(self, at: TopicPartition, offset: int, ident: bytes) -> None:
        """Check I18: a record that was read is the committed one at its offset, unless an unclean
        election removed it since."""
        self.consumed_batches += 1
        served = self._ghost.ever_named(at)
        if not served:
            return
        if any(offset in (one.idents.get(ident), one.lost.get(ident)) for one in served):
            return
        committed = [one.idents.get(ident) for one in served]
        raise Violation(
            "ConsistentRead", f"{at}: {ident!r} was read at {offset}, committed at {committed}"
        )

    def latest(self, at: TopicPartition, offset: int, epoch: int = -1, who: str = "") -> None:
        """Check I6: the log end that a client is told is neither above the committed end nor below
        an earlier answer. `epoch`: the leader epoch of the answer; `who`: the client, which sends
        its next request only after an answer."""
        served = self._ghost.ever_named(at)
        if not served:
            return
        ghost, *former = served
        if ghost.unclean_epoch > epoch or -1 < offset <= _end(former):
            return
        if offset == -1 and former:
            return  # it read further in a removed topic
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


def _end(former: list[PartitionGhost]) -> int:
    """Return the greatest end of the committed logs of removed topics, or -1."""
    return max((one.true_high_watermark for one in former), default=-1)
