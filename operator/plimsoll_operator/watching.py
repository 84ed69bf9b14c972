"""The user's objects, watched by kopf: raw events only.

kopf's change handlers, timers and daemons write annotations and finalizers into the objects that
they serve; user objects must stay as their owner wrote them, and nothing of ours may hold up their
deletion.  Hence `on.event` alone, feeding the clusters' own queues.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import logging
from collections.abc import Iterator
from typing import Any

import kopf

from plimsoll_operator.api import GROUP, VERSION
from plimsoll_operator.clusters import Clusters
from plimsoll_operator.handlers.term import Task, Work
from plimsoll_operator.kube.access import Access, Token
from plimsoll_operator.kube.client import Object
from plimsoll_operator.objects import Key, Objects
from plimsoll_operator.options import Options

logger = logging.getLogger("plimsoll.watching")

WATCH_SECONDS = 10
INACTIVITY_SECONDS = 15


class _ForEver:
    """Waits between attempts: short ones first, and then every five seconds for ever."""

    def __iter__(self) -> Iterator[float]:
        return itertools.chain((0.5, 1, 2), itertools.repeat(5))


def settings() -> kopf.OperatorSettings:
    """Watches that notice a dead connection in seconds, and write nothing anywhere."""
    found = kopf.OperatorSettings()
    found.posting.enabled = False
    found.peering.standalone = True
    found.scanning.disabled = True
    found.watching.server_timeout = WATCH_SECONDS
    found.watching.client_timeout = WATCH_SECONDS + 2
    found.watching.inactivity_timeout = INACTIVITY_SECONDS
    found.watching.connect_timeout = 2
    found.networking.request_timeout = 10
    found.networking.connect_timeout = 2
    found.networking.error_backoffs = _ForEver()
    found.process.ultimate_exiting_timeout = 5
    return found


def registry(objects: Objects, clusters: Clusters, access: Access) -> kopf.OperatorRegistry:
    """What happens on each event: remember the object, and tell whoever leads its cluster."""
    found = kopf.OperatorRegistry()
    token = Token(access)

    async def login(**_: Any) -> kopf.ConnectionInfo:
        return kopf.ConnectionInfo(
            server=access.server,
            ca_data=_encoded(access.certificate_authority),
            token=token.value(),
            certificate_path=access.client_certificate,
            private_key_path=access.client_key,
        )

    async def log_cluster(event: dict[str, Any], **_: Any) -> None:
        gone, body, key = _read(event)
        if gone:
            objects.clusters.drop(key)
            clusters.gone(key)
        elif cluster := objects.clusters.put(body):
            clusters.seen(cluster)
            clusters.offer(cluster.key, Work(Task.CLUSTER, cluster.key))

    async def topic(event: dict[str, Any], **_: Any) -> None:
        gone, body, key = _read(event)
        seen = objects.topics.drop(key) if gone else objects.topics.put(body)
        if seen is not None:
            clusters.offer(seen.cluster_key, Work(Task.TOPIC, key))

    async def verification(event: dict[str, Any], **_: Any) -> None:
        gone, body, key = _read(event)
        seen = objects.verifications.drop(key) if gone else objects.verifications.put(body)
        if seen is not None:
            clusters.offer(seen.cluster_key, Work(Task.VERIFICATION, key))

    kopf.on.login(registry=found)(login)
    kopf.on.event(GROUP, VERSION, "logclusters", registry=found)(log_cluster)
    kopf.on.event(GROUP, VERSION, "topics", registry=found)(topic)
    kopf.on.event(GROUP, VERSION, "verifications", registry=found)(verification)
    return found


def _read(event: dict[str, Any]) -> tuple[bool, Object, Key]:
    """Whether the object is gone, the object, and its key."""
    body = dict(event["object"])
    meta = body["metadata"]
    return event.get("type") == "DELETED", body, (meta["namespace"], meta["name"])


async def watch(
    options: Options, found: kopf.OperatorRegistry, stop: asyncio.Event, ready: asyncio.Event
) -> None:
    """Until `stop` is set."""
    await kopf.operator(
        registry=found,
        settings=settings(),
        standalone=True,
        clusterwide=not options.namespaces,
        namespaces=options.namespaces,
        stop_flag=stop,
        ready_flag=ready,
    )


def _encoded(certificates: str | None) -> str | None:
    return None if certificates is None else base64.b64encode(certificates.encode()).decode()
