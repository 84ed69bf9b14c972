"""The operator process: watches, controllers, their server, health and metrics.

`python -m plimsoll_operator`, configured by the environment. On SIGTERM controllers stop deciding,
Leases are released, then sockets close.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import uvloop

from plimsoll_operator.backup.s3_store import bucket
from plimsoll_operator.control_failures import surface
from plimsoll_operator.controller.controller_server import ControllerServer
from plimsoll_operator.controller.inside_server import InsideServer
from plimsoll_operator.history.archive import Archive
from plimsoll_operator.history.segment_stores import KubeStore
from plimsoll_operator.history.segments import Budget
from plimsoll_operator.kube.api_outage import ApiOutage
from plimsoll_operator.kube.kube_api import KubeApi, Transport
from plimsoll_operator.kube.official_transport import (
    Access,
    NoCluster,
    OfficialTransport,
    allow_nesting,
    find_access,
)
from plimsoll_operator.kube.seen_objects import Key, Objects
from plimsoll_operator.leadership.isr_departures import pod_look
from plimsoll_operator.leadership.process_parts import Parts
from plimsoll_operator.metalog.kube_objects import AT_ONCE
from plimsoll_operator.metalog.kubernetes_log import KubernetesLog
from plimsoll_operator.options import BadOption, OperatorOptions, from_environment
from plimsoll_operator.process.http_server import HttpServer
from plimsoll_operator.process.kopf_watches import KopfWatches
from plimsoll_operator.process.log_level import follow
from plimsoll_operator.process.operator import Operator
from plimsoll_operator.process.view_access import ViewAccess
from plimsoll_operator.process_clocks import monotonic_ms, wall_ms
from plimsoll_operator.status.operator_metrics import Metrics
from plimsoll_operator.status.status_writer import WRITES_AT_ONCE
from plimsoll_process.hang_watch import HangWatch, waited_ms
from plimsoll_process.log_lines import LineOutput
from plimsoll_process.loop_watch import LoopWatch
from plimsoll_process.process_tuning import switch_soon, tune

logger = logging.getLogger("plimsoll")

LOG_CONNECTIONS = 16
"""Number of connections to the API server for one cluster's metadata log. An append uses one at a
time; creating the slots of a new log uses several at once, at most `AT_ONCE` over all clusters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pools:
    """The process's own connection pools to the API server, one for each purpose, so that no
    purpose waits for another. The metadata log of each LogCluster has further pools of its own
    (`_log`)."""

    kube: Transport
    lease: Transport
    status: Transport
    watch: Transport

    async def close(self) -> None:
        for transport in (self.kube, self.lease, self.status, self.watch):
            await transport.close()


def main() -> None:
    allow_nesting()
    try:
        options = from_environment()
        access = asyncio.run(find_access())
    except (BadOption, NoCluster) as error:
        sys.exit(str(error))
    handler = logging.StreamHandler()
    logging.basicConfig(handlers=[handler])
    output = LineOutput(handler, options.log_level, "Json")
    logging.getLogger("kopf").setLevel(logging.WARNING)
    metrics = Metrics()
    outage = ApiOutage(monotonic_ms)
    counted = partial(_counted, metrics, outage)
    pools = Pools(
        kube=counted(OfficialTransport(access)),
        lease=counted(OfficialTransport(access, connections=32)),
        status=counted(OfficialTransport(access, connections=WRITES_AT_ONCE + 1)),
        watch=counted(OfficialTransport(access, connections=0)),
    )
    parts = Parts(
        options=options,
        kube=KubeApi(pools.kube),
        lease_kube=KubeApi(pools.lease),
        status_kube=KubeApi(pools.status),
        watch_kube=KubeApi(pools.watch),
        metadata_log=partial(_log, access, counted, asyncio.Semaphore(AT_ONCE)),
        objects=Objects(),
        server=ControllerServer("::", options.controller_port, InsideServer()),
        metrics=metrics,
        outage=outage if options.shared_drills else None,
        pod_look=pod_look(KubeApi(pools.kube)),
        now_ms=wall_ms,
        monotonic_ms=monotonic_ms,
        waited_ms=partial(waited_ms, threading.get_native_id()),
        backup_directory=options.backup_directory,
        make_bucket=partial(bucket, wall_ms),
        history=partial(_history, options, KubeApi(pools.status)),
    )
    tune()
    switch_soon()
    try:
        uvloop.run(run(parts, pools, access, output))
    except Exception:
        logger.critical(
            "the operator exits because of an internal error, and Kubernetes starts it again; "
            "please report the error with this traceback",
            exc_info=True,
        )
        sys.exit(1)


def _history(options: OperatorOptions, kube: KubeApi, key: Key, cluster_id: UUID) -> Archive:
    budget = Budget(days=options.history_days, bytes_max=options.history_bytes)
    return Archive(KubeStore(kube, *key, cluster_id), str(cluster_id), budget)


def _counted(metrics: Metrics, outage: ApiOutage, transport: Transport) -> Transport:
    """Return a transport that sends over `transport`, counts its requests, and fails while a drill
    keeps this process from the API server."""
    return metrics.api_calls.around(outage.around(transport))


def _log(
    access: Access,
    counted: Callable[[Transport], Transport],
    bulk: asyncio.Semaphore,
    key: Key,
    cluster_id: UUID,
) -> KubernetesLog:
    transport = OfficialTransport(access, connections=LOG_CONNECTIONS)
    return KubernetesLog(counted(transport), *key, cluster_id, bulk=bulk)


async def run(parts: Parts, pools: Pools, access: Access, output: LineOutput) -> None:
    """Run the operator until SIGTERM or SIGINT, then step down and close everything. Raise the
    first fatal error of any part."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    operator = Operator(parts, partial(KopfWatches, parts.options, access))
    access_reviews = ViewAccess(parts.kube, parts.monotonic_ms)
    health = HttpServer(parts, lambda: operator.ready, access_reviews.check)
    parts.metrics.watch(parts)
    await health.start(parts.options.metrics_port, parts.options.health_port)
    running = asyncio.ensure_future(operator.run())
    stopping = asyncio.ensure_future(stop.wait())
    level = asyncio.ensure_future(_log_level(parts.options, output))
    failed: asyncio.Future[None] = loop.create_future()
    surface(loop, partial(_fail, failed))
    loop_watch = LoopWatch()
    parts.metrics.watch_loop(loop_watch.holds)
    loop_watch.start()
    hang_watch = HangWatch(loop_watch.holds)
    hang_watch.start()
    try:
        watched: list[asyncio.Future[Any]] = [running, failed, stopping, level]
        await asyncio.wait(watched, return_when=asyncio.FIRST_COMPLETED)
        for ended in (running, failed, level):
            if ended.done():
                ended.result()
    finally:
        logger.info("the operator is stopping")
        hang_watch.stop()
        loop_watch.stop()
        stopping.cancel()
        running.cancel()
        level.cancel()
        await asyncio.wait([running, level])
        await health.close()
        await pools.close()
        logger.info("the operator has stopped")


async def _log_level(options: OperatorOptions, output: LineOutput) -> None:
    """Apply the log level in the file that the chart mounts, whenever it changes, until cancelled.
    If the options name no file, only wait until cancelled."""
    if options.log_level_file:
        await follow(Path(options.log_level_file), output)
    await asyncio.Event().wait()


def _fail(failed: asyncio.Future[None], error: BaseException) -> None:
    if not failed.done():
        failed.set_exception(error)


if __name__ == "__main__":
    main()
