"""Lists and watches the users' objects through a `KubeApi`: for hosts that do not run kopf.

A local cluster and the simulator have their API server in memory. A list after a lost watch reports
every existing object; `resync` finds an object that was deleted meanwhile, as with kopf.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import aclosing

from plimsoll_operator.kube.errors import ApiError
from plimsoll_operator.kube.kube_api import KubeApi, Listed, follow
from plimsoll_operator.kube.resources import WATCHED_KINDS, Kind
from plimsoll_operator.process.watch_receiver import WatchReceiver

logger = logging.getLogger("plimsoll.watches")

AGAIN_SECONDS = 1.0


class ObjectWatches:
    """`process.operator.UserWatches`, for every namespace."""

    def __init__(self, kube: KubeApi, receiver: WatchReceiver) -> None:
        self._kube = kube
        self._receiver = receiver
        self._listed: set[Kind] = set()

    @property
    def ready(self) -> bool:
        """Return True if every kind was listed."""
        return len(self._listed) == len(WATCHED_KINDS)

    async def run(self) -> None:
        """Watch until cancelled."""
        async with asyncio.TaskGroup() as group:
            for kind in WATCHED_KINDS:
                group.create_task(self._follow(kind))

    async def _follow(self, kind: Kind) -> None:
        while True:
            try:
                await self._look(kind)
            except ApiError as error:
                logger.info("watching %s: %s", kind.plural, error)
                await asyncio.sleep(AGAIN_SECONDS)

    async def _look(self, kind: Kind) -> None:
        """Process one list and the changes after it, until a new list is needed."""
        async with aclosing(follow(self._kube, kind)) as told:
            async for seen in told:
                if isinstance(seen, Listed):
                    for body in seen.items:
                        self._receiver.take(kind, {"type": "ADDED", "object": body})
                    self._listed.add(kind)
                else:
                    self._receiver.take(kind, seen)
