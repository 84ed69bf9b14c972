"""Compares replicas with the committed logs: completeness, equality, bounds, quorums, leader
epochs.

`ReplicaChecker.look` is called with each broker that did something in a step, and checks only what
changed. Predicates I1-I10 and I19-I24 of the protocol.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from typing import Any

from plimsoll_broker.replication.hosted_partitions import Hosted
from plimsoll_core.cluster.model import ClusterImage
from plimsoll_core.ids import BrokerId
from plimsoll_core.replica.leader import CommittedIsr, IsrState, Leader, PendingExpand
from plimsoll_core.replica.replica import Replica
from plimsoll_sim.checkers import (
    compaction,
    copies,
    epochs_and_producers,
    log_starts,
    transactions,
)
from plimsoll_sim.hosts.brokers import BrokerHost
from plimsoll_sim.oracle.committed import MetadataGhost
from plimsoll_sim.oracle.partition_ghost import Copy, PartitionGhost, Violation


class ReplicaChecker:
    """Checks the replicas of all brokers of a world."""

    def __init__(
        self,
        ghost: MetadataGhost,
        now_us: Callable[[], int],
        proposed: Callable[[], None],
        cleaned: Callable[[PartitionGhost, Copy, Hosted], None],
    ) -> None:
        """Create a checker. `proposed`: called with every proposed ISR. `cleaned`: called with
        every log of which a cleaner replaced segments, once its broker leads or may be elected."""
        self._cleaned = cleaned
        self._ghost = ghost
        self._now_us = now_us
        self._proposed = proposed
        self._seen: dict[int, dict[Hosted, tuple[Any, ...]]] = {}
        self._images: dict[int, ClusterImage | None] = {}
        self._lives: dict[int, int] = {}
        self._lifetimes: dict[int, LifetimeChecker] = {}

    def look_at_metadata(self, host: BrokerHost) -> None:
        """Check only a broker's metadata, while the other brokers continue with another history of
        the metadata log."""
        manager = host.manager
        if manager is not None and manager.image is not self._images.get(host.id):
            self._new_image(host, manager.image)

    def look(self, host: BrokerHost) -> None:
        """Check the replicas of a broker after a step in which the broker ran."""
        if host.crashed:
            self._look_back(host)
            return
        manager = host.manager
        if manager is None:
            return
        if self._lives.get(host.id) != host.lives:
            self._lives[host.id] = host.lives
            self._seen[host.id] = {}
            self._images[host.id] = None
            self._lifetimes[host.id] = LifetimeChecker()
        if manager.image is not self._images[host.id]:
            self._new_image(host, manager.image)
        seen, lifetimes = self._seen[host.id], self._lifetimes[host.id]
        for hosted in manager:
            replica, log, leader = hosted.replica, hosted.log, hosted.replica.leader
            if leader is not None:
                lifetimes.look(hosted, leader, manager.image)
            state = (
                log.log_end_offset,
                log.cuts,
                replica.high_watermark,
                replica.partition,
                leader,
                log.log_start_offset,
                None if leader is None else leader.isr,
                log.epochs.version,
                replica.failed,
                _shape(hosted),
                replica.last_stable_offset,
            )
            before = seen.get(hosted)
            if before == state:
                continue
            seen[hosted] = state
            self._changed(host, hosted, before)
        lifetimes.looked(manager.image)

    def _changed(self, host: BrokerHost, hosted: Hosted, before: tuple[Any, ...] | None) -> None:
        ghost = self._ghost.served(hosted.key)
        if ghost is None:
            return
        if hosted.replica.failed:
            self._last_commit(ghost, host, hosted, before)
            log_starts.moved_out_of_service(ghost, host, hosted)
            return
        replica, log = hosted.replica, hosted.log
        copy = ghost.copy_of(host.id)
        begun, copy.start = copy.start, log.log_start_offset
        held = tuple(copy.batches) if copy.start != begun else ()
        cut = before is not None and before[1] != log.cuts
        cleaned = before is not None and before[9] != _shape(hosted)
        if before is None or cut or cleaned or before[5] != log.log_start_offset:
            copies.reread(ghost, copy, hosted)
            copy.reshaped = True
            if copy.start != begun:
                log_starts.moved(ghost, host, hosted, held, cut=cut)
            epochs_and_producers.check_producers(ghost, copy, hosted)
        elif before[0] != log.log_end_offset:
            copies.extend(ghost, copy, copies.read(ghost, copy, hosted, copy.end))
        copy.retention = log_starts.retention_of(hosted)
        copy.end = log.log_end_offset
        epochs_and_producers.check_epochs(ghost, host.id, copy, hosted)
        self._check_bounds(ghost, host.id, copy, replica)
        if log.transactional:
            _check_transactions(ghost, copy, hosted, None if cut or cleaned else before)
        copy.high_watermark = replica.high_watermark
        leader = replica.leader
        if leader is not None:
            self._check_leader(ghost, host, replica, leader, before)
        elif before is not None and before[3].partition_epoch > replica.partition.partition_epoch:
            raise Violation("EpochsMonotone", f"{ghost.name}: broker {host.id} went back")
        self._check_copy(ghost, host, copy)

    # --- what a leader does -----------------------------------------------------------------------

    def _check_leader(
        self,
        ghost: PartitionGhost,
        host: BrokerHost,
        replica: Replica,
        leader: Leader,
        before: tuple[Any, ...] | None,
    ) -> None:
        led = ghost.led.setdefault(leader.epoch, {})
        led.setdefault(host.id, self._now_us())
        if len(led) > 1:
            raise Violation(
                "OneLeaderPerEpoch", f"{ghost.name}: {sorted(led)} led at LE {leader.epoch}"
            )
        hw = replica.high_watermark
        same_term = before is not None and before[4] is leader
        if same_term and before is not None and hw < before[2]:
            raise Violation("HWMonotone", f"{ghost.name}: {host.id} went from {before[2]} to {hw}")
        self._check_commit(ghost, host, replica, leader, same_term=same_term)
        self._check_isr(ghost, host, replica, leader)
        news = before is not None and leader.isr is not before[6]
        if news and not isinstance(leader.isr, CommittedIsr):
            self._proposed()

    def _check_commit(
        self,
        ghost: PartitionGhost,
        host: BrokerHost,
        replica: Replica,
        leader: Leader,
        *,
        same_term: bool,
    ) -> None:
        hw = replica.high_watermark
        if hw > ghost.true_high_watermark and leader.epoch >= ghost.unclean_epoch:
            # Elected uncleanly, with an old disk, it may remember commits that were given up.
            if same_term or leader.epoch != ghost.unclean_epoch:
                self._check_quorum(ghost, host.id, replica, leader)
            self._commit(ghost, host.id, hw)

    def _check_quorum(
        self, ghost: PartitionGhost, broker_id: int, replica: Replica, leader: Leader
    ) -> None:
        """Check I7: every member that the leader counts for the quorum has the data."""
        hw, partition = replica.high_watermark, replica.partition
        if len(leader.isr.committed) < partition.effective_min_isr:
            raise Violation(
                "CommitQuorum",
                f"{ghost.name}: {broker_id} commits {hw} with ISR {leader.isr.committed} below "
                f"min ISR {partition.effective_min_isr}",
            )
        for member in leader.isr.maximal:
            copy = ghost.copies.get(int(member))
            if int(member) in ghost.lossy_open or _lost_it_since(ghost, leader.isr, member):
                continue
            if copy is None or copy.end < hw:
                raise Violation(
                    "CommitQuorum",
                    f"{ghost.name}: {broker_id} commits up to {hw}, but {member} of "
                    f"{leader.isr.maximal} ends at {0 if copy is None else copy.end}",
                )

    def _commit(self, ghost: PartitionGhost, broker_id: int, hw: int) -> None:
        copy = ghost.copy_of(broker_id)
        known = ghost.true_high_watermark
        first = bisect_left(copy.batches, known, key=lambda batch: batch.last)
        for batch in copy.batches[first:]:
            if batch.last >= hw:
                break
            if batch.base != ghost.true_high_watermark and ghost.committed:
                raise Violation(
                    "LeaderCompleteness",
                    f"{ghost.name}: {broker_id} commits {batch} after {ghost.true_high_watermark}",
                )
            epochs_and_producers.check_order(ghost, batch)
            epochs_and_producers.check_once(ghost, batch)
            ghost.commit(batch)
            ghost.note_producer(batch)

    def _look_back(self, host: BrokerHost) -> None:
        """Check a process that crashed in this step. Of its work in the step, only what clients may
        have been told counts."""
        with host.as_if_alive():
            for hosted in host.manager or ():
                ghost = self._ghost.served(hosted.key)
                before = self._seen.get(host.id, {}).get(hosted)
                if ghost is not None:
                    self._last_commit(ghost, host, hosted, before)

    def _last_commit(
        self,
        ghost: PartitionGhost,
        host: BrokerHost,
        hosted: Hosted,
        before: tuple[Any, ...] | None,
    ) -> None:
        """Record what a leader committed in the step in which its disk or process failed, since
        clients may have been told of it."""
        replica, leader = hosted.replica, None if before is None else before[4]
        if before is None or leader is None or replica.high_watermark <= before[2]:
            return
        copy = ghost.copy_of(host.id)
        copies.extend(ghost, copy, copies.read(ghost, copy, hosted, copy.end))
        copy.end = hosted.log.log_end_offset
        copy.high_watermark = replica.high_watermark
        self._check_commit(ghost, host, replica, leader, same_term=True)

    def _check_isr(
        self, ghost: PartitionGhost, host: BrokerHost, replica: Replica, leader: Leader
    ) -> None:
        """Check I8 for a leader that knows the newest committed metadata, and I1 for the
        partition's committed leader."""
        committed = self._ghost.image.partitions.get(ghost.key)
        if committed is None or self._ghost.restored or committed.leader != host.id:
            return
        if committed.leader_epoch != leader.epoch:
            return
        if not set(committed.isr) <= set(leader.isr.maximal):
            raise Violation(
                "QuorumSuperset",
                f"{ghost.name}: ISR {committed.isr} is not within {host.id}'s maximal "
                f"{leader.isr.maximal}",
            )
        current = committed.partition_epoch == replica.partition.partition_epoch
        settled = isinstance(leader.isr, CommittedIsr)
        if current and settled and set(leader.isr.maximal) != set(committed.isr):
            raise Violation(
                "QuorumSuperset",
                f"{ghost.name}: {host.id} counts {leader.isr.maximal}, committed {committed.isr}",
            )

    # --- what every copy does ---------------------------------------------------------------------

    def _check_bounds(
        self, ghost: PartitionGhost, broker_id: int, copy: Copy, replica: Replica
    ) -> None:
        """Check I5: log start ≤ high watermark ≤ log end."""
        hw = replica.high_watermark
        if not copy.start <= hw <= copy.end:
            raise Violation(
                "HWBound", f"{ghost.name}: {broker_id} has {copy.start},{hw},{copy.end}"
            )

    def _check_copy(self, ghost: PartitionGhost, host: BrokerHost, copy: Copy) -> None:
        """Check I1, I2 and I3: the copy equals the committed log, up to the offset that each of
        these predicates requires."""
        known = ghost.true_high_watermark
        copies.compare(ghost, copy)
        matching = copies.matches(ghost, copy)
        p = self._ghost.image.partitions.get(ghost.key)
        replica_epoch = self._replica_epoch(host, ghost)
        if copy.suspect and replica_epoch >= ghost.unclean_epoch and copy.end <= known:
            copy.suspect = copy.same < len(copy.batches)
        _check_below_high_watermark(ghost, host.id, copy, matching)
        if p is None or host.epoch is None or self._ghost.restored:
            return
        broker = self._ghost.image.brokers.get(p.replicas[0].__class__(host.id))
        present = broker is not None and int(broker.broker_epoch) == host.epoch and host.serving
        leads = p.leader == host.id and replica_epoch == p.leader_epoch
        if leads and matching < known:
            raise Violation(
                "LeaderCompleteness",
                f"{ghost.name}: leader {host.id} has {matching} of {known} committed",
            )
        may_lead = present and host.id in (*p.isr, *p.elr)
        if may_lead and matching < known:
            raise Violation(
                "LeaderCandidate",
                f"{ghost.name}: {host.id} of isr {p.isr}, elr {p.elr} has "
                f"{matching} of {known} committed",
            )
        candidate = may_lead and host.id not in ghost.lossy_open
        if leads and not copy.suspect:
            compaction.check_keys(ghost, host.id, copy)
        self._check_cleaned(ghost, host, copy, whole=leads or candidate)
        if leads or candidate:
            log_starts.check_deleted(ghost, host.id, copy)
        if leads:
            log_starts.check(ghost, host.id, copy, leads=True)
        elif candidate:
            log_starts.check(ghost, host.id, copy, leads=False)

    def _check_cleaned(
        self, ghost: PartitionGhost, host: BrokerHost, copy: Copy, *, whole: bool
    ) -> None:
        """Check a cleaned log, but only once its copy is complete: before that, a copy can lack
        superseded records without having the records that supersede them."""
        hosted = host.hosted(ghost.key)
        if copy.reshaped and whole and hosted is not None and not copy.suspect:
            copy.reshaped = False
            self._cleaned(ghost, copy, hosted)

    def _replica_epoch(self, host: BrokerHost, ghost: PartitionGhost) -> int:
        hosted = host.hosted(ghost.key)
        return -1 if hosted is None else int(hosted.replica.partition.leader_epoch)

    # --- metadata ---------------------------------------------------------------------------------

    def _new_image(self, host: BrokerHost, image: ClusterImage | None) -> None:
        """Check I23: a broker's metadata is a prefix of the committed log, and never becomes
        shorter."""
        before = self._images.get(host.id)
        self._images[host.id] = image
        if image is not None and self._ghost.restored:
            self._ghost.applied_up_to(int(image.next_offset))
        if image is None or (self._ghost.restored and host.id not in self._ghost.keepers):
            return
        if before is not None and image.next_offset < before.next_offset:
            raise Violation("MetadataPrefix", f"broker {host.id} went back in the metadata")
        known = self._ghost.images.get(int(image.next_offset))
        if known is None or known != image:
            raise Violation(
                "MetadataPrefix",
                f"broker {host.id} has an image at {image.next_offset} that was never committed",
            )

    def committed_moved(self, hosts: dict[int, BrokerHost]) -> None:
        """Check the copies of all brokers again, because the committed metadata changed."""
        for ghost in self._ghost.partitions.values():
            for host in hosts.values():
                copy = ghost.copies.get(host.id)
                hosted = None if copy is None else host.hosted(ghost.key)
                if copy is not None and hosted is not None and not hosted.replica.failed:
                    self._check_copy(ghost, host, copy)
                    if hosted.replica.leader is not None:
                        self._check_isr(ghost, host, hosted.replica, hosted.replica.leader)


def _lost_it_since(ghost: PartitionGhost, isr: IsrState, member: BrokerId) -> bool:
    """Return True if the proposed ISR contains `member` in a lifetime after which the broker lost
    its data. Such a proposal is refused once the next lifetime has registered. If it was committed
    before, a member lost data, and no predicate holds for its quorum."""
    if not isinstance(isr, PendingExpand) or isr.joining != member:
        return False
    lost = ghost.lossy_lives.get(int(member), -1)
    epochs = {one.broker_id: one.broker_epoch for one in isr.proposal.new_isr}
    return (epoch := epochs[member]) is not None and lost >= int(epoch)


def _check_below_high_watermark(
    ghost: PartitionGhost, broker_id: int, copy: Copy, matching: int
) -> None:
    """Check I3: the copy equals the committed log below the high watermark. `matching`: offset up
    to which they are equal."""
    must = min(copy.high_watermark, ghost.true_high_watermark)
    if not copy.suspect and broker_id not in ghost.lossy_open and matching < must:
        raise Violation(
            "LogMatchingUnderHW",
            f"{ghost.name}: {broker_id}'s log differs from the committed one below {must}: "
            f"{copy.batches[copy.same : copy.same + 1]}",
        )


class LifetimeChecker:
    """Checks the fetches that a leader accepts, for one lifetime of a broker."""

    def __init__(self) -> None:
        self._image: ClusterImage | None = None
        self._known: dict[Hosted, tuple[Leader, dict[int, int | None]]] = {}

    def look(self, hosted: Hosted, leader: Leader, image: ClusterImage | None) -> None:
        """Check that the leader counts a follower's fetch only if it comes from the lifetime in
        which the follower is registered."""
        of, known = self._known.get(hosted, (None, {}))
        if of is not leader:
            known = {}
            self._known[hosted] = (leader, known)
        for broker_id, progress in leader.followers.items():
            epoch = progress.broker_epoch
            if known.get(broker_id) == epoch:
                continue
            known[broker_id] = epoch
            broker = None if image is None else image.brokers.get(broker_id)
            # A step that also brought metadata leaves the order of the two unknown.
            if image is not self._image or broker is None or epoch is None:
                continue
            if epoch != broker.broker_epoch:
                raise Violation(
                    "EpochsMonotone",
                    f"{hosted!r} counts a fetch of broker {broker_id}'s life {epoch}, and knows of "
                    f"{broker.broker_epoch}",
                )

    def looked(self, image: ClusterImage | None) -> None:
        """Store the image as the last one seen, after everything in a step was checked."""
        self._image = image


def _check_transactions(
    ghost: PartitionGhost, copy: Copy, hosted: Hosted, before: tuple[Any, ...] | None
) -> None:
    """Check a log with transactions that has changed. `before`: the state before that; None if the
    log was opened, cut or cleaned."""
    replica = hosted.replica
    transactions.check_stable(ghost, copy, hosted)
    if before is None:
        transactions.check_index(ghost, copy, hosted)
    elif replica.leader is not None and before[4] is replica.leader:
        transactions.check_forward(ghost, before[10], replica.last_stable_offset)


def _shape(hosted: Hosted) -> tuple[int, ...] | None:
    """Return a value that identifies the segments of a log with holes. It changes when cleaned
    segments replace others. Return None for a log without holes."""
    log = hosted.log
    return tuple(map(id, log.segments)) if log.holes else None
