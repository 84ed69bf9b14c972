"""Counts replicas that left an ISR, for the metrics. If a broker stopped or was fenced, its pod is
read first, to tell an eviction from other causes.

Called after each commit. No committed record tells an eviction from another end of the process;
only the pod's condition DisruptionTarget does. The condition may be set shortly after the SIGTERM,
so the pod is read twice. Only counters depend on it. Where pods cannot be read (simulation,
`plimsoll local`), the causes in the records are counted at once.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from plimsoll_core.cluster.isr_shrinks import Left, ShrinkCause
from plimsoll_core.cluster.model import ClusterImage
from plimsoll_core.ids import BrokerId
from plimsoll_operator.api.labels import broker_pod
from plimsoll_operator.kube.errors import ApiError
from plimsoll_operator.kube.kube_api import KubeApi, Object
from plimsoll_operator.kube.resources import PODS
from plimsoll_operator.kube.seen_objects import Key
from plimsoll_operator.status.commit_counters import CommitCounters

READ_SECONDS_MAX = 1.0
SECOND_LOOK_S = 1.0
_STOPPED = (ShrinkCause.RESTART, ShrinkCause.FENCED)
_ASKED_FOR = "EvictionByEvictionAPI"


@dataclass(frozen=True, slots=True)
class Eviction:
    """The eviction of a pod. `asked_for`: True for a call of the Eviction API, as `kubectl drain`
    makes it, which respects the disruption budget."""

    asked_for: bool


PodLook = Callable[[str, str, str | None], Awaitable[Eviction | None]]
"""Function of (namespace, name, uid) that reads a pod and returns its eviction. It returns None if
the pod is not evicted, cannot be read, or has another uid."""


def pod_look(kube: KubeApi) -> PodLook:
    """Return a `PodLook` that reads the pod from the API server at each call."""

    async def look(namespace: str, name: str, uid: str | None) -> Eviction | None:
        try:
            pod = await kube.get(PODS, namespace, name, timeout_s=READ_SECONDS_MAX)
        except ApiError:
            return None
        return eviction_of(pod, uid)

    return look


def eviction_of(pod: Object, uid: str | None) -> Eviction | None:
    """Return the eviction that the pod's conditions state. Return None if there is none, or if
    `uid` is given and is not the pod's uid."""
    if uid is not None and pod["metadata"]["uid"] != uid:
        return None
    for found in (pod.get("status") or {}).get("conditions") or ():
        if found.get("type") == "DisruptionTarget" and found.get("status") == "True":
            return Eviction(asked_for=found.get("reason") == _ASKED_FOR)
    return None


@dataclass(slots=True)
class _StoppedBroker:
    """A broker that left ISRs, the uid of its pod (None if unknown), and the departures not counted
    yet."""

    pod_uid: str | None
    left: Counter[Left]


class IsrDepartures:
    """Counts the replicas that leave ISRs in the operator's metrics. `run` is a task of the term.
    At most one check of the pod per broker waits. With `look` None no pod is read, and every
    departure is counted at once with the cause in the records."""

    def __init__(self, key: Key, counters: CommitCounters, look: PodLook | None) -> None:
        self._key = key
        self._counters = counters
        self._look = look
        self._waiting: dict[BrokerId, _StoppedBroker] = {}
        self._any = asyncio.Event()

    def add(self, old: ClusterImage, shrinks: Counter[Left]) -> None:
        """Count the departures in `shrinks` (number of replicas by broker and cause) at once; if
        the broker stopped or was fenced and pods can be read, count after a check of the pod. `old`
        is the image before the departures."""
        for left, count in shrinks.items():
            if self._look is None or left.cause not in _STOPPED:
                self._counters.left_isrs(self._key, left, count)
                continue
            broker = old.brokers.get(left.broker_id)
            uid = None if broker is None else broker.pod_uid
            waiting = self._waiting.setdefault(left.broker_id, _StoppedBroker(uid, Counter()))
            waiting.left[left] += count
            self._any.set()

    async def run(self) -> None:
        """Check pods and count until cancelled. Departures that still wait then are counted with
        the cause in the records."""
        looked: dict[BrokerId, _StoppedBroker] = {}
        try:
            while True:
                await self._any.wait()
                self._any.clear()
                looked, self._waiting = self._waiting, {}
                async with asyncio.TaskGroup() as group:
                    for broker_id, waiting in looked.items():
                        group.create_task(self._count_after_look(broker_id, waiting))
        finally:
            for waiting in (*looked.values(), *self._waiting.values()):
                self._count(waiting, None)

    async def _count_after_look(self, broker_id: BrokerId, waiting: _StoppedBroker) -> None:
        assert self._look is not None, "else nothing waits"
        pod = (self._key[0], broker_pod(self._key[1], broker_id), waiting.pod_uid)
        eviction = await self._look(*pod)
        if eviction is None:
            await asyncio.sleep(SECOND_LOOK_S)
            eviction = await self._look(*pod)
        self._count(waiting, eviction)

    def _count(self, waiting: _StoppedBroker, eviction: Eviction | None) -> None:
        for left, count in waiting.left.items():
            evicted = Left(broker_id=left.broker_id, cause=ShrinkCause.EVICTED)
            asked_for = eviction is not None and eviction.asked_for
            told = left if eviction is None else evicted
            self._counters.left_isrs(self._key, told, count, asked_for=asked_for)
        waiting.left.clear()
