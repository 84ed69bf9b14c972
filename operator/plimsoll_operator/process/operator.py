"""The operator of any host: its watches, the clusters that it leads, and their server.

The operator's process, a local cluster and the simulator each build their own `Parts` and run this
one composition, so tests run the reconcilers that ship.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from plimsoll_operator.leadership.process_parts import Parts
from plimsoll_operator.process.child_watches import OwnedWatches
from plimsoll_operator.process.missing_cluster import look_after_strays
from plimsoll_operator.process.object_watches import WatchReceiver
from plimsoll_operator.process.resync import resync
from plimsoll_operator.process.supervisor import ClusterSupervisor


class UserWatches(Protocol):
    """Watches the users' objects and passes each event to a `WatchReceiver`."""

    @property
    def ready(self) -> bool:
        """Return True once the watches have begun."""

    async def run(self) -> None:
        """Watch until cancelled. Raises only errors after which watching cannot continue."""


class Operator:
    """The operator of one process: its watches, the leadership of its clusters, and their server.
    Call `run` once."""

    def __init__(self, parts: Parts, watches: Callable[[WatchReceiver], UserWatches]) -> None:
        self._parts = parts
        self._clusters = ClusterSupervisor(parts)
        self._watches = watches(WatchReceiver(parts.objects, self._clusters))

    @property
    def ready(self) -> bool:
        return self._watches.ready

    async def run(self) -> None:
        """Run until cancelled. Then, or after an error of any part, which is raised, end the
        leadership of every cluster and release every Lease."""
        parts, clusters = self._parts, self._clusters
        try:
            await parts.server.start()
            async with asyncio.TaskGroup() as group:
                group.create_task(self._watches.run())
                group.create_task(resync(parts, clusters))
                group.create_task(look_after_strays(parts))
                group.create_task(OwnedWatches(parts, clusters).run())
        finally:
            await clusters.stop()
            await parts.server.close()
