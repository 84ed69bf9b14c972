"""What the process says over HTTP: metrics and its clusters' partitions on one port, alive and
ready on another, which the kubelet asks.

The partition view is for people and tools that ask now; it is never written anywhere.  It shows
committed state only, and only where this process leads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aiohttp import web

from plimsoll_core.cluster.model import ClusterImage, Topic
from plimsoll_operator.api.cluster_ids import kafka_id
from plimsoll_operator.leadership.process_parts import Parts
from plimsoll_operator.status.partition_health import partitions_of

Answer = web.Response


class Health:
    """`ready` says whether the watches have begun."""

    def __init__(self, parts: Parts, ready: Callable[[], bool]) -> None:
        self._parts = parts
        self._ready = ready
        self._runners: list[web.AppRunner] = []

    @property
    def views(self) -> list[web.RouteDef]:
        """Metrics and partitions: also for a host that serves them on a port of its own."""
        return [
            web.get("/metrics", self._metrics),
            web.get("/v1/clusters", self._clusters),
            web.get("/v1/clusters/{namespace}/{cluster}/topics/{topic}", self._topic),
        ]

    async def start(self, metrics_port: int, health_port: int) -> None:
        health = [web.get("/healthz", self._alive), web.get("/readyz", self._readiness)]
        await self._serve(self.views, metrics_port)
        await self._serve(health, health_port)

    async def _serve(self, routes: list[web.RouteDef], port: int) -> None:
        app = web.Application()
        app.add_routes(routes)
        runner = web.AppRunner(app, access_log=None)
        self._runners.append(runner)
        await runner.setup()
        await web.TCPSite(runner, None, port).start()

    @property
    def addresses(self) -> list[list[Any]]:
        """Where each of the two listens, views first."""
        return [runner.addresses for runner in self._runners]

    async def close(self) -> None:
        for runner in self._runners:
            await runner.cleanup()

    async def _alive(self, request: web.Request) -> Answer:
        return web.Response(text="ok\n")

    async def _readiness(self, request: web.Request) -> Answer:
        ready = self._ready()
        return web.Response(text="ready\n" if ready else "starting\n", status=200 if ready else 503)

    async def _metrics(self, request: web.Request) -> Answer:
        await self._parts.metrics.prepare()
        return web.Response(
            body=self._parts.metrics.render(),
            headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"},
        )

    async def _clusters(self, request: web.Request) -> Answer:
        led = [
            {
                "namespace": key[0],
                "cluster": key[1],
                "active": leader.controller.active,
                "controllerEpoch": leader.controller.epoch,
                "offset": leader.controller.image.next_offset,
            }
            for key, leader in sorted(self._parts.leaders.items())
        ]
        return web.json_response({"clusters": led})

    async def _topic(self, request: web.Request) -> Answer:
        key = (request.match_info["namespace"], request.match_info["cluster"])
        leader = self._parts.leaders.get(key)
        if leader is None or not leader.controller.active:
            return _error(404, f"This process does not lead {key[0]}/{key[1]}; ask the other one.")
        image = leader.controller.image
        name = request.match_info["topic"]
        topic_id = image.topic_ids.get(name)
        if topic_id is None:
            return _error(404, f"There is no topic {name}.")
        return web.json_response(topic_view(image, image.topics[topic_id]))


def topic_view(image: ClusterImage, topic: Topic) -> dict[str, Any]:
    """A topic's partitions, as committed."""
    return {
        "topic": topic.name,
        "topicId": kafka_id(topic.id),
        "controllerEpoch": image.controller_epoch,
        "offset": image.next_offset,
        "partitions": [
            {
                "partition": p.index,
                "leader": p.leader,
                "leaderEpoch": p.leader_epoch,
                "partitionEpoch": p.partition_epoch,
                "replicas": list(p.replicas),
                "isr": list(p.isr),
                "elr": list(p.elr),
                "lastKnownElr": list(p.last_known_elr),
            }
            for p in partitions_of(image, topic)
        ],
    }


def _error(status: int, text: str) -> Answer:
    return web.json_response({"error": text}, status=status)
