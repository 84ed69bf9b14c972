"""Restarts as an operator carries them out: what it asks for, and what it does to pods.

A simulated operator looks at pods and templates now and then, asks for grants, and carries out what
is granted; between its look and its deed it may be frozen for long, as real ones are.  Templates
are written under the version that was read, and pods deleted by uid.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from plimsoll_core.cluster.model import ClusterImage
from plimsoll_core.ids import BrokerId
from plimsoll_core.messages.requests import Request
from plimsoll_core.messages.restarts import RequestRestart
from plimsoll_operator.controller.runtime import Controller
from plimsoll_sim.hosts.brokers import BrokerHost

LOOK_S = 1.3


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedPod:
    """One look at a broker's pod and template."""

    host: BrokerHost
    pod_uid: str
    runs: str
    template: str
    version: int


def look(host: BrokerHost) -> SimulatedPod:
    return SimulatedPod(
        host=host,
        pod_uid=host.pod_uid(),
        runs=host.revision,
        template=host.template,
        version=host.template_version,
    )


class Roller:
    """One term's handler of restarts."""

    def __init__(
        self,
        controller: Controller,
        brokers: dict[int, BrokerHost],
        wanted: Callable[[], str],
        api: Callable[[], tuple[float, bool]],
        delete: Callable[[BrokerHost, str], None],
    ) -> None:
        self._controller = controller
        self._brokers = brokers
        self._wanted = wanted
        self._api = api
        self._delete = delete

    async def forever(self) -> None:
        while True:
            await self._controller.wait_active()
            for host in self._brokers.values():
                await self._attend(host)
            await asyncio.sleep(LOOK_S)

    @property
    def _image(self) -> ClusterImage:
        return self._controller.image

    async def _reach(self) -> bool:
        """A call to the API server: how long it takes, and whether it succeeds."""
        seconds, works = self._api()
        await asyncio.sleep(seconds)
        return works

    async def _attend(self, host: BrokerHost) -> None:
        if host.removed or not await self._reach():
            return
        seen, wanted = look(host), self._wanted()
        request = self._asks(seen, wanted)
        if request is not None:
            await self._controller.request(request)
        grant = self._image.grants.get(BrokerId(host.id))
        if grant is None or grant.revision != wanted or not self._controller.active:
            return
        if seen.template != wanted:
            if not await self._reach() or host.template_version != seen.version:
                return
            host.template, host.template_version = wanted, seen.version + 1
        if seen.pod_uid == grant.pod_uid and await self._reach():
            self._delete(host, seen.pod_uid)

    def _asks(self, seen: SimulatedPod, wanted: str) -> Request | None:
        broker_id = BrokerId(seen.host.id)
        grant = self._image.grants.get(broker_id)
        if grant is None:
            image = self._image
            if broker_id not in image.members or broker_id in image.leaving:
                return None
            if seen.runs == wanted and seen.template == wanted:
                return None
            pod_uid = seen.pod_uid
        else:
            replaced = seen.pod_uid != grant.pod_uid
            if (seen.runs if replaced else grant.revision) == wanted:
                return None
            pod_uid = seen.pod_uid if replaced else str(grant.pod_uid)
        return RequestRestart(broker_id=broker_id, pod_uid=pod_uid, revision=wanted)
