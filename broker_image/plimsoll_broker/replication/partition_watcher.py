"""Who is told by the replica manager what happened to a partition: the groups' coordinators."""

from __future__ import annotations

from typing import Protocol

from plimsoll_broker.replication.hosted_partition import Hosted


class PartitionWatcher(Protocol):
    """Who follows which partitions are led here."""

    def stepped(self, hosted: Hosted) -> None:
        """Its role may have changed.  Before anybody who waited for it is answered."""
