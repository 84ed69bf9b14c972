"""PartitionWatcher: the interface by which the replica manager tells group coordinators of
steps."""

from __future__ import annotations

from typing import Protocol

from plimsoll_broker.replication.hosted_partition import Hosted


class PartitionWatcher(Protocol):
    """Follows the partitions that are led here."""

    def stepped(self, hosted: Hosted) -> None:
        """Called after each step, when the role may have changed, and before waiting requests are
        answered."""
