"""Checks that the pool that rolls last waits for the one that the LogCluster's spec names first.

Called with each decision of a controller. A broker's revision is known here by the tag of its
image, as the pods have it; the product compares digests of templates. A change of the tag changes
both pools, so that one comparison suffices: of the tags of the first pool's brokers with the tag
into which a broker of the other pool restarts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from plimsoll_core.cluster.image import apply
from plimsoll_core.cluster.model import ClusterImage
from plimsoll_core.cluster.records import RestartGranted
from plimsoll_core.controller.decide import Decision
from plimsoll_core.controller.kernel.volatile_state import VolatileState
from plimsoll_core.ids import BrokerId
from plimsoll_core.messages.requests import Request
from plimsoll_sim.desired.objects import AppliedObjects
from plimsoll_sim.oracle.partition_ghost import Violation


class StageChecker:
    """Checks the decisions of one world. `tags`: the image tag of each revision of pods. `accuse`
    is called with each violation."""

    def __init__(
        self,
        objects: AppliedObjects,
        tags: Callable[[], Mapping[str, str]],
        accuse: Callable[[Violation], None],
    ) -> None:
        self._objects = objects
        self._tags = tags
        self._accuse = accuse
        # The number of restarts of the last pool that were judged.
        self.judged = 0

    def judge(
        self, image: ClusterImage, soft: VolatileState, request: Request, decision: Decision
    ) -> None:
        """Check one decision. `image`: the one on which it was based."""
        first = self._first()
        if not first:
            return
        for record in decision.records:
            if isinstance(record, RestartGranted):
                for why in self._early(image, soft, first, record):
                    self._accuse(Violation("StagedRoll", f"{why}: {record}"))
            image = apply(image, record)

    def _first(self) -> range:
        """Return the ids of the pool that rolls first; none if the pools roll together."""
        spec = self._objects.cluster.spec
        pools = {pool.name: pool for pool in spec.pools or ()}
        if spec.rollout is None or len(pools) < 2:
            return range(0)
        return pools[spec.rollout.order[0]].ids

    def _early(
        self, image: ClusterImage, soft: VolatileState, first: range, record: RestartGranted
    ) -> Iterator[str]:
        """Yield why the restart comes too early. One that began before and gets another revision,
        and one of a broker that is down, may come at any time. A broker that the spec did not ask
        for at some time is not waited for by requests from then."""
        broker_id = record.broker_id
        broker = image.brokers.get(broker_id)
        serves = broker is not None and broker.active and broker_id not in soft.leaving
        if broker_id in first or broker_id in image.grants or not serves:
            return
        self.judged += 1
        tags = self._tags()
        # The first pod of a revision is not there yet.
        wanted = tags.get(record.revision, self._objects.image_tag)
        for other in image.members:
            known = image.brokers.get(other)
            if other not in first or other in image.leaving or known is None:
                continue
            if other in self._objects.once_unwanted:
                continue
            if tags.get(known.revision) != wanted:
                yield f"broker {other} rolls before, and runs image {tags.get(known.revision)}"
            elif other in image.grants or not known.active:
                yield f"broker {other} rolls before, and is away"
            elif _lags(image, other):
                yield f"broker {other} rolls before, and is not in sync"


def _lags(image: ClusterImage, broker_id: BrokerId) -> bool:
    return any(
        broker_id in p.replicas and broker_id not in {*p.isr, *p.adding}
        for p in image.partitions.values()
        if p.leader is not None
    )
