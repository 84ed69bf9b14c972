"""ClusterView: the broker's current cluster image, and other knowledge that metadata and admin
handlers share.

Made by `handlers.routes`; `ImageWatch` gets every new image. This module decides nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from plimsoll_broker.clocks import monotonic_ms
from plimsoll_broker.handlers.long_work import Aside
from plimsoll_core.cluster import listener_peers
from plimsoll_core.cluster.listeners import Listener
from plimsoll_core.cluster.model import Broker, ClusterImage, Endpoint, Partition
from plimsoll_core.cluster.recent_fences import RecentFences
from plimsoll_core.errors import Code
from plimsoll_core.ids import BrokerId
from plimsoll_core.messages.brokers import TopicDefaults
from plimsoll_core.messages.requests import Answer, Forwarded
from plimsoll_core.quotas.fair_pool import FairPool

WAIT_MS_MAX = 60_000
"""The longest time in ms for which a request is held, even if its client would wait longer."""

Command = Callable[[Forwarded, int], Awaitable[Answer]]
"""Sends a request to the controller once and returns its answer. Takes a timeout in ms; raises
NoController."""


class ImageWatch:
    """The current cluster image of this broker, replaced by `update`. `wait_for` lets handlers wait
    until a condition on the image holds. `just_fenced`: the brokers that were fenced a moment
    ago."""

    def __init__(self, image: ClusterImage) -> None:
        self.image = image
        self._changed = asyncio.Event()
        self._fences = RecentFences()

    def update(self, old: ClusterImage, new: ClusterImage) -> None:
        """Use a new cluster image, and wake all waiting handlers. Subscribed to the metadata
        stream."""
        self.image = new
        self._fences.update(old, new, monotonic_ms())
        self._changed.set()
        self._changed = asyncio.Event()

    @property
    def just_fenced(self) -> frozenset[BrokerId]:
        """The brokers that were fenced so recently that Metadata replies still list them."""
        return self._fences.listed(monotonic_ms())

    async def wait_for(self, fulfilled: Callable[[ClusterImage], bool], timeout_ms: int) -> bool:
        """Wait until `fulfilled` returns True for the current image. Return False if that takes
        longer than `timeout_ms` (at most `WAIT_MS_MAX`)."""
        try:
            async with asyncio.timeout(min(max(timeout_ms, 0), WAIT_MS_MAX) / 1000):
                while not fulfilled(self.image):
                    await self._changed.wait()
        except TimeoutError:
            return False
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterView:
    """The knowledge of the cluster that metadata and admin handlers share. `watch`: the current
    image. `command`: sends a request to the controller. `configs`: this broker's own configs, by
    Kafka's names. `aside`: runs long work in threads. `topic_defaults`: returns the cluster's
    defaults for new topics; None until a controller has sent them. `lost_leaders`: returns the
    leaders from which this broker fetches and that it cannot reach, each with the time in ms since
    then. `wanted`: the pool of the names of topics on demand; None for one of this view alone."""

    broker_id: BrokerId
    watch: ImageWatch
    command: Command
    configs: Mapping[str, str]
    aside: Aside = field(default_factory=Aside)
    topic_defaults: Callable[[], TopicDefaults | None] = lambda: None
    lost_leaders: Callable[[], Mapping[BrokerId, int]] = dict
    wanted: FairPool | None = None

    @property
    def image(self) -> ClusterImage:
        return self.watch.image


class AskedOn(NamedTuple):
    """The listener of the client's connection, by which a reply chooses brokers' endpoints.
    `code_known`: True if the client's request version knows the error LISTENER_NOT_FOUND."""

    listener: Listener
    code_known: bool = True


def endpoint_of(broker: Broker, listener: Listener) -> Endpoint | None:
    """Return the broker's endpoint for clients of this listener, or None if it has none."""
    return listener_peers.for_clients(broker, listener)


def admin_target(view: ClusterView) -> int:
    """Return the id of the broker that a reply names as the controller, so that clients send admin
    requests to it; any broker forwards these requests. Return this broker's id if this broker is
    not fenced, else the lowest id of an unfenced broker, or -1 if all are fenced."""
    own = view.image.brokers.get(view.broker_id)
    if own is not None and not own.fenced:
        return view.broker_id
    live = [broker.id for broker in view.image.brokers.values() if not broker.fenced]
    return min(live, default=-1)


def leader_code(image: ClusterImage, leader: BrokerId | None, asked: AskedOn) -> int:
    """Return the error code that clients of this listener see for a partition led by `leader`
    (None: leaderless). Return NONE if they can reach this leader, LEADER_NOT_AVAILABLE if there is
    none or it is fenced or unregistered, and LISTENER_NOT_FOUND if it has no endpoint for them
    (LEADER_NOT_AVAILABLE in versions without that error)."""
    broker = None if leader is None else image.brokers.get(leader)
    if broker is None or broker.fenced:
        return Code.LEADER_NOT_AVAILABLE
    if endpoint_of(broker, asked.listener) is None:
        return Code.LISTENER_NOT_FOUND if asked.code_known else Code.LEADER_NOT_AVAILABLE
    return Code.NONE


def offline(image: ClusterImage, replicas: tuple[BrokerId, ...]) -> list[int]:
    """Return those of these replicas, by broker id and in the same order, that are on fenced or
    unregistered brokers."""
    found = []
    for replica in replicas:
        broker = image.brokers.get(replica)
        if broker is None or broker.fenced:
            found.append(int(replica))
    return found


def node(broker: Broker, endpoint: Endpoint) -> dict[str, Any]:
    """Return the response fields that describe a broker and its endpoint."""
    return {"host": endpoint.host, "port": endpoint.port, "rack": broker.rack}


def partition(image: ClusterImage, found: Partition, asked: AskedOn) -> dict[str, Any]:
    """Return the response fields that every description of a partition has."""
    code = leader_code(image, found.leader, asked)
    return {
        "error_code": code,
        "partition_index": found.index,
        "leader_id": -1 if code or found.leader is None else found.leader,
        "leader_epoch": found.leader_epoch,
        "replica_nodes": found.replicas,
        "isr_nodes": found.isr,
        "offline_replicas": offline(image, found.replicas),
    }
