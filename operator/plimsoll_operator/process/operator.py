"""An operator of any host: its watches, the clusters that it leads, and their server.

The operator's process, a local cluster and the simulator each build `Parts` of their own and run
this one composition: what reconciles in a test is what ships.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from plimsoll_operator.leadership.process_parts import Parts
from plimsoll_operator.process.child_watches import OwnedWatches
from plimsoll_operator.process.missing_cluster import look_after_strays
from plimsoll_operator.process.resync import resync
from plimsoll_operator.process.supervisor import Clusters
from plimsoll_operator.process.watch_receiver import WatchReceiver


class UserWatches(Protocol):
    """What tells a `WatchReceiver` of the users' objects."""

    @property
    def ready(self) -> bool:
        """Whether the watches have begun."""

    async def run(self) -> None:
        """Until it is cancelled; raises what it cannot go on with."""


class Operator:
    """`run` once."""

    def __init__(self, parts: Parts, watches: Callable[[WatchReceiver], UserWatches]) -> None:
        self._parts = parts
        self._clusters = Clusters(parts)
        self._watches = watches(WatchReceiver(parts.objects, self._clusters))

    @property
    def ready(self) -> bool:
        """Whether the watches have begun."""
        return self._watches.ready

    async def run(self) -> None:
        """Until it is cancelled: then it steps down everywhere and releases every Lease.  An error
        of any part ends it in the same way, and is raised."""
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
