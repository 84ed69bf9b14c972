"""Kubernetes Events, as `kubectl describe` shows them.

An `Occurrence` is an Event to write and its object. Delivery is best effort: Events wait in a
bounded queue, and a few are written each second. An Event that does not fit into the queue is
counted and dropped.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from plimsoll_core.cluster.model import ReassignmentObject, RebalanceObject, TopicObject
from plimsoll_core.security.state import UserObject
from plimsoll_operator.api import API_VERSION
from plimsoll_operator.api.conditions import micro_timestamp
from plimsoll_operator.api.labels import REPORTING_CONTROLLER
from plimsoll_operator.api.logcluster import LogCluster
from plimsoll_operator.api.meta import ObjectMeta
from plimsoll_operator.kube.errors import ApiError
from plimsoll_operator.kube.kube_api import KubeApi
from plimsoll_operator.kube.resources import EVENTS, LOG_CLUSTERS

logger = logging.getLogger("plimsoll.events")

LENGTH_MAX = 1_000


class About(NamedTuple):
    """The object that an Event is about."""

    kind: str
    namespace: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Occurrence:
    """An Event to write, about the LogCluster and about the object `about`, if any. `key`: an Event
    with the same key is not written again within a minute, unless an Event with this key in its
    `undoes` came in between. `unclean`: True if the Event reports an elected leader that may lack
    acknowledged records."""

    key: str
    undoes: str = ""
    reason: str
    message: str
    warning: bool = False
    about: About | None = None
    unclean: bool = False


def about_committed(
    kind: str, found: TopicObject | ReassignmentObject | RebalanceObject | UserObject | None
) -> About | None:
    """Return a reference to the object that the metadata log names. Return None for a topic without
    an object."""
    return None if found is None else About(kind, found.namespace, found.name, found.uid)


def about_seen(kind: str, meta: ObjectMeta) -> About:
    """Return a reference to the object with this metadata."""
    return About(kind, meta.namespace, meta.name, meta.uid)


QUEUE_MAX = 100
SAME_SECONDS = 60.0
WRITES_PER_SECOND = 5


class Events:
    def __init__(self, api: KubeApi, identity: str, now_ms: Callable[[], int]) -> None:
        self._api = api
        self._now_ms = now_ms
        self._identity = identity
        self._queue: asyncio.Queue[tuple[About, Occurrence]] = asyncio.Queue(QUEUE_MAX)
        # When each key was last queued, on the event loop's clock. Holds only the keys of the last
        # minute.
        self._last: dict[str, float] = {}
        self.dropped = 0

    def add(self, cluster: LogCluster, occurrence: Occurrence) -> None:
        """Queue an Event about the LogCluster and, if the occurrence names an object, another about
        that. Never blocks; if the queue is full, the Event is dropped and counted in `dropped`. An
        Event with the same key as one of the last minute is ignored, unless a later Event undid
        that one: a reader of "broker fenced" also sees "broker unfenced"."""
        now = asyncio.get_running_loop().time()
        self._last = {k: at for k, at in self._last.items() if now - at < SAME_SECONDS}
        self._last.pop(occurrence.undoes, None)
        if occurrence.key in self._last:
            return
        self._last[occurrence.key] = now
        places = [about_seen(LOG_CLUSTERS.kind, cluster.metadata)]
        if occurrence.about is not None:
            places.append(occurrence.about)
        for place in places:
            try:
                self._queue.put_nowait((place, occurrence))
            except asyncio.QueueFull:
                self.dropped += 1

    async def run(self) -> None:
        while True:
            await self._write(*await self._queue.get())
            await asyncio.sleep(1 / WRITES_PER_SECOND)

    async def flush(self) -> None:
        """Write all queued Events now, without the pauses of `run`; one that cannot be written is
        logged and dropped. Used at the end of a term."""
        while not self._queue.empty():
            await self._write(*self._queue.get_nowait())

    async def _write(self, place: About, occurrence: Occurrence) -> None:
        try:
            body = event(place, occurrence, self._identity, self._now_ms())
            await self._api.create(EVENTS, body)
        except ApiError as error:
            text = (
                "the operator could not write the Kubernetes Event %s about %s %s, and does "
                "not write it again; nothing else is affected: %s"
            )
            logger.info(text, occurrence.reason, place.kind, place.name, error)


def event(place: About, occurrence: Occurrence, identity: str, now_ms: int) -> dict[str, Any]:
    """Return the manifest of an Event about the object `place`, in that object's namespace.
    `identity`: the operator process that reports it."""
    namespace, name = place.namespace, place.name
    return EVENTS.manifest(
        {"name": f"{name}.{secrets.token_hex(8)}", "namespace": namespace},
        eventTime=micro_timestamp(now_ms),
        type="Warning" if occurrence.warning else "Normal",
        reason=occurrence.reason,
        action=occurrence.reason,
        note=occurrence.message,
        regarding={
            "apiVersion": API_VERSION,
            "kind": place.kind,
            "name": name,
            "namespace": namespace,
            "uid": place.uid,
        },
        reportingController=REPORTING_CONTROLLER,
        reportingInstance=identity[:128],
    )
