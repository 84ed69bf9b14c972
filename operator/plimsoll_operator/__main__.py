"""The operator process: watches, controllers, their server, health and metrics.

`python -m plimsoll_operator`, configured by the environment.  SIGTERM: controllers stop deciding,
Leases are released, then sockets close.
"""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import sys
import time
from dataclasses import dataclass
from functools import partial
from typing import Any

from plimsoll_operator.controller.server import ControllerServer
from plimsoll_operator.failures import surface
from plimsoll_operator.kube.access import Access, NoCluster, find_access
from plimsoll_operator.kube.cache import Objects
from plimsoll_operator.kube.client import Kube
from plimsoll_operator.kube.official import OfficialTransport
from plimsoll_operator.kube.port import Transport
from plimsoll_operator.leadership.services import Parts
from plimsoll_operator.options import BadOption, from_environment
from plimsoll_operator.process.child_watches import OwnedWatches
from plimsoll_operator.process.http_server import Health
from plimsoll_operator.process.kopf_watches import Watches, WatchReceiver
from plimsoll_operator.process.missing_cluster import look_after_strays
from plimsoll_operator.process.resync import resync
from plimsoll_operator.process.supervisor import Clusters
from plimsoll_operator.status.metrics import Metrics
from plimsoll_process.collector import tune
from plimsoll_process.loopwatch import LoopWatch

logger = logging.getLogger("plimsoll")

WATCHES_STOP_S_MAX = 5.0
LOG_CONNECTIONS = 16
"""For one cluster's log: appends go one at a time, slots of a new ring several at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pools:
    """The operator's own connections to the API server; each cluster's log has others."""

    kube: Transport
    lease: Transport
    status: Transport
    watch: Transport

    async def close(self) -> None:
        for transport in (self.kube, self.lease, self.status, self.watch):
            await transport.close()


class _JsonLines(logging.Formatter):
    """One JSON object per line."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line)


def main() -> None:
    """Run until SIGTERM or SIGINT."""
    try:
        options = from_environment()
        access = asyncio.run(find_access())
    except (BadOption, NoCluster) as error:
        sys.exit(str(error))
    handler = logging.StreamHandler()
    handler.setFormatter(_JsonLines())
    logging.basicConfig(level=options.log_level.upper(), handlers=[handler])
    logging.getLogger("kopf").setLevel(logging.WARNING)
    pools = Pools(
        kube=OfficialTransport(access),
        lease=OfficialTransport(access, connections=32),
        status=OfficialTransport(access, connections=2),
        watch=OfficialTransport(access, connections=0),
    )
    parts = Parts(
        options=options,
        kube=Kube(pools.kube),
        lease_kube=Kube(pools.lease),
        status_kube=Kube(pools.status),
        watch_kube=Kube(pools.watch),
        log_transport=lambda: OfficialTransport(access, connections=LOG_CONNECTIONS),
        objects=Objects(),
        server=ControllerServer("0.0.0.0", options.controller_port),
        metrics=Metrics(),
    )
    tune()
    try:
        asyncio.run(run(parts, pools, access))
    except Exception:
        logger.critical("the operator ends by a bug of its own; please report it", exc_info=True)
        sys.exit(1)


async def run(parts: Parts, pools: Pools, access: Access) -> None:
    """Everything, until a signal."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    clusters = Clusters(parts)
    watches = Watches(parts.options, access, WatchReceiver(parts.objects, clusters))
    health = Health(parts, lambda: watches.ready)
    parts.metrics.watch(parts)
    await parts.server.start()
    await health.start(parts.options.metrics_port, parts.options.health_port)
    watching = asyncio.ensure_future(watches.run())
    comparing = asyncio.ensure_future(resync(parts, clusters))
    strays = asyncio.ensure_future(look_after_strays(parts))
    owned = asyncio.ensure_future(OwnedWatches(parts, clusters).run())
    stopping = asyncio.ensure_future(stop.wait())
    failed: asyncio.Future[None] = loop.create_future()
    surface(loop, partial(_fail, failed))
    loop_watch = LoopWatch()
    parts.metrics.watch_loop(loop_watch.holds)
    loop_watch.start()
    try:
        parts_of_it: list[asyncio.Future[None]] = [watching, comparing, strays, failed]
        watched: list[asyncio.Future[Any]] = [*parts_of_it, stopping]
        await asyncio.wait(watched, return_when=asyncio.FIRST_COMPLETED)
        for task in parts_of_it:
            if task.done():
                task.result()
    finally:
        logger.info("stopping")
        loop_watch.stop()
        for helper in (comparing, strays, owned, stopping):
            helper.cancel()
        watches.stop()
        await clusters.stop()
        await parts.server.close()
        await health.close()
        await pools.close()
        await asyncio.wait([watching], timeout=WATCHES_STOP_S_MAX)
        logger.info("stopped")


def _fail(failed: asyncio.Future[None], error: BaseException) -> None:
    if not failed.done():
        failed.set_exception(error)


if __name__ == "__main__":
    main()
