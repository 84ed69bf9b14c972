"""ServingLease: decides whether a leader may answer requests to which another leader could know a
newer answer.

Asked by the handlers of reads and acks=0/1 if the cluster has `onControllerLoss: StopServing`.
Asked always by coordinators, since their answers come from memory.
`plimsoll_core.replica.leader_lease` holds the rule.
"""

from __future__ import annotations

import logging
from typing import Protocol

from plimsoll_broker.replication.hosted_partitions import Hosted
from plimsoll_broker.replication.role_changes import Roles
from plimsoll_broker.replication.traffic import Traffic
from plimsoll_core.replica.leader_lease import LeaderLease, from_followers

logger = logging.getLogger("plimsoll.serving_lease")


class LeaseOwner(Protocol):
    """The part of the replica manager that `ServingLease` needs."""

    @property
    def roles(self) -> Roles: ...
    @property
    def traffic(self) -> Traffic: ...
    @property
    def stops_serving(self) -> bool:
        """True if reads of ordinary partitions need the lease."""

    def now_ms(self) -> int: ...


class ServingLease:
    """Decides whether leaders on this broker may answer without asking others: reads, acks=0/1 and
    the answers of coordinators. One for all partitions of a broker. `lease`: the lease that
    heartbeats extend; None if the broker sends none."""

    def __init__(self, owner: LeaseOwner, lease: LeaderLease | None) -> None:
        self.lease = LeaderLease() if lease is None else lease
        self._owner = owner
        # True if the present refusals have been logged.
        self._refusing = False

    def may_serve(self, hosted: Hosted) -> bool:
        """Return True if reads and acks=0/1 of this leader may be answered: the cluster does not
        have `onControllerLoss: StopServing`, or `holds` is True, which counts a refusal
        otherwise."""
        return not self._owner.stops_serving or self.holds(hosted)

    def knows_since(self, since_ms: int) -> bool:
        """Return True if all metadata committed up to `since_ms`, a time of the broker's monotonic
        clock, has been applied here."""
        return self.lease.applied_since(since_ms, self._owner.roles.applied)

    def holds(self, hosted: Hosted) -> bool:
        """Return True if a controller or the followers have confirmed, within the session timeout,
        that no other broker leads the partition. Otherwise count and log a refusal, unless this
        broker is not the leader, and return False."""
        owner, lease = self._owner, self.lease
        now_ms = owner.now_ms()
        if lease.from_controller(now_ms, owner.roles.applied):
            self._refusing = False
            return True
        leader, known = hosted.replica.leader, hosted.applied
        if leader is None or known is None:
            return False
        if from_followers(leader, known, now_ms - lease.window_ms):
            return True
        owner.traffic.unleased_refusals += 1
        if not self._refusing:
            self._refusing = True
            logger.warning(
                "no controller has confirmed this broker for %d ms, so other brokers may lead its "
                "partitions by now: it refuses clients' requests for them, first for %r, until a "
                "controller confirms it; if this lasts, check the operator's pods and the network "
                "to them",
                lease.window_ms,
                hosted,
            )
        return False
