"""Selects the fenced brokers that Metadata answers still list: those that were fenced a moment ago.
Pure.

A fence and the elections that it causes come in one image. librdkafka (2.16, for one) may find, in
one answer, new leaders for its partitions and their old leader missing from the brokers. Then it
ends the old leader's handle while records still move from there to the new ones; it often forgets
the leader, and asks again after up to a second. An answer of a broker that does not know of the
election yet brings the old leader back, and the next one costs another second. So a broker stays in
the list for a while after its fence, without any partition.

A broker that stopped cleanly does not stay: its partitions moved to other leaders in earlier
images, and every active broker applied those before the fence. No client misses it, and admin
clients that ask each listed broker would wait for it. Of a broker that died it does not matter how
many partitions it led last, since large elections come in several images. Called by brokers' views
of the image. Source: docs/protocol.md §5.6.
"""

from __future__ import annotations

from plimsoll_core.cluster.model import Broker, ClusterImage
from plimsoll_core.ids import BrokerId

LISTED_MS = 9_000
"""The time for which a fenced broker stays in answers, in milliseconds: Kafka's default of
broker.session.timeout.ms, for which Kafka lists a dead broker."""

_NONE: frozenset[BrokerId] = frozenset()


class RecentFences:
    """The brokers that were fenced within the last `LISTED_MS` milliseconds, as one broker saw in
    the images that it applied. That broker lists them in Metadata answers. Fences before the first
    image are not known."""

    def __init__(self) -> None:
        self._until_ms: dict[BrokerId, int] = {}

    def update(self, old: ClusterImage, new: ClusterImage, now_ms: int) -> None:
        """Record the brokers that the step from image `old` to image `new` fenced, at `now_ms`
        (monotonic milliseconds), except those that had stopped cleanly. Forget those that it
        unfenced or unregistered."""
        if new.brokers is old.brokers:
            return
        for broker_id, broker in new.brokers.items():
            before = old.brokers.get(broker_id)
            if not broker.fenced:
                self._until_ms.pop(broker_id, None)
            elif before is not None and not before.fenced and _is_missed(old, before):
                self._until_ms[broker_id] = now_ms + LISTED_MS
        for broker_id in [one for one in self._until_ms if one not in new.brokers]:
            del self._until_ms[broker_id]

    def listed(self, now_ms: int) -> frozenset[BrokerId]:
        """Forget the brokers fenced `LISTED_MS` or longer before `now_ms` (monotonic milliseconds),
        and return the others: a Metadata answer still lists them. All of them are registered."""
        if not self._until_ms:
            return _NONE
        for broker_id in [one for one, until_ms in self._until_ms.items() if now_ms >= until_ms]:
            del self._until_ms[broker_id]
        return frozenset(self._until_ms)


def _is_missed(image: ClusterImage, broker: Broker) -> bool:
    """Return False if the broker was shutting down and no longer led any partition; otherwise True,
    because clients may miss the broker."""
    return not broker.shutting_down or _leads(image, broker.id)


def _leads(image: ClusterImage, broker_id: BrokerId) -> bool:
    return any(image.partitions[key].leader == broker_id for key in image.hosted.get(broker_id, ()))
