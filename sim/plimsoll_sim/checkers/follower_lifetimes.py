"""I10 of the protocol, as seen in each broker: a leader's knowledge of its followers is of their
present lifetimes."""

from __future__ import annotations

from plimsoll_broker.replication.hosted_partitions import Hosted
from plimsoll_core.cluster.model import ClusterImage
from plimsoll_core.replica.leader import Leader
from plimsoll_sim.oracle.partition_ghost import Violation


class LifetimeChecker:
    """One for each life of a broker."""

    def __init__(self) -> None:
        self._image: ClusterImage | None = None
        self._known: dict[Hosted, tuple[Leader, dict[int, int | None]]] = {}

    def look(self, hosted: Hosted, leader: Leader, image: ClusterImage | None) -> None:
        """A fetch is only taken up of the lifetime in which its sender is registered."""
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
        """Store the image after all of a step was checked."""
        self._image = image
