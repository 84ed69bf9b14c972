"""Whether a leader here may answer what another leader could know better.

Asked by the handlers of reads and acks=0/1, which ask only where the cluster wants them to stop
(`onControllerLoss: StopServing`), and by coordinators, whose answers from memory always need it.
What holds is `plimsoll_core.replica.leader_lease`'s to say.
"""

from __future__ import annotations

import logging
from typing import Protocol

from plimsoll_broker.replication.hosted_partition import Hosted
from plimsoll_broker.replication.role_changes import Roles
from plimsoll_broker.replication.traffic import Traffic
from plimsoll_core.replica.leader_lease import LeaderLease, from_followers

logger = logging.getLogger("plimsoll.replicas")


class LeaseOwner(Protocol):
    """What is needed of the replica manager."""

    @property
    def roles(self) -> Roles: ...
    @property
    def traffic(self) -> Traffic: ...
    @property
    def stops_serving(self) -> bool:
        """Whether reads of ordinary partitions need the lease."""

    def now_ms(self) -> int: ...


class ServingLease:
    """One for all partitions of a broker.  `lease`: None: no heartbeat extends one."""

    def __init__(self, owner: LeaseOwner, lease: LeaderLease | None) -> None:
        self.lease = LeaderLease() if lease is None else lease
        self._owner = owner
        # Whether the refusals that go on now were told of.
        self._refusing = False

    def may_serve(self, hosted: Hosted) -> bool:
        """Whether reads and acks=0/1 of this leader may be answered: always, unless the cluster
        wants them to stop when another broker may lead by now."""
        return not self._owner.stops_serving or self.holds(hosted)

    def knows_since(self, since_ms: int) -> bool:
        """Whether all metadata that was committed at `since_ms` has its effects here."""
        return self.lease.applied_since(since_ms, self._owner.roles.applied)

    def holds(self, hosted: Hosted) -> bool:
        """Whether no other broker can have led it for longer than a session."""
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
                "no controller has confirmed this broker for %d ms: what another leader may know "
                "better is refused where not every electable replica follows, %r is the first",
                lease.window_ms,
                hosted,
            )
        return False
