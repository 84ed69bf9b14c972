"""Serves the operator's HTTP view of the clusters that it leads: read-only JSON of the present
state.

A view shows committed state and what brokers reported to the controller, and only while this
process leads the cluster. Slow views run in a thread, one at a time, so that no request delays the
controller.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from aiohttp import web

from plimsoll_operator.kube.seen_objects import Key
from plimsoll_operator.leadership.process_parts import Led, Parts
from plimsoll_operator.process.view_access import Denied
from plimsoll_operator.rights_explanation import explanation, question
from plimsoll_operator.status import cluster_views
from plimsoll_operator.status.cluster_views import what_if

ROOT = "/v1/clusters"
ONE = ROOT + "/{namespace}/{cluster}"
BROKERS_MAX = 100
FORBIDDEN = 403
NOT_LEADING = "NotLeading"
EVERY: Key = ("", "")
"""Key that stands for all LogClusters in an access review."""

Guard = Callable[[Any, Key, str], Awaitable[Denied | None]]
"""Function of (headers, LogCluster, address of the peer) that returns the denial, or None if access
is allowed."""
Answer = web.Response


class Views:
    """The HTTP routes of the view. `guard` decides access; None admits every request that reaches
    the port (a local cluster on loopback)."""

    def __init__(self, parts: Parts, guard: Guard | None) -> None:
        self._parts = parts
        self._guard = guard
        self._turn = asyncio.Lock()

    @property
    def routes(self) -> list[web.RouteDef]:
        return [
            web.get(ROOT, self._clusters),
            web.get(ONE, self._of(self._cluster)),
            web.get(ONE + "/topics", self._of(self._topics)),
            web.get(ONE + "/topics/{topic}", self._of(self._topic)),
            web.get(ONE + "/brokers", self._of(self._brokers)),
            web.get(ONE + "/what-if", self._of(self._what_if)),
            web.get(ONE + "/rights", self._of(self._rights)),
            web.get(ONE + "/history", self._of(self._history)),
        ]

    def _of(
        self, show: Callable[[web.Request, Led], Awaitable[Answer]]
    ) -> Callable[[web.Request], Awaitable[Answer]]:
        async def handle(request: web.Request) -> Answer:
            key = (request.match_info["namespace"], request.match_info["cluster"])
            if (denied := await self._denied(request, key)) is not None:
                return _error(denied.status, denied.message)
            leader = self._parts.leaders.get(key)
            if leader is None or not leader.controller.active:
                text = (
                    f"This operator process does not lead LogCluster {key[0]}/{key[1]}; ask "
                    "another operator process."
                )
                return _error(404, text, NOT_LEADING)
            return await show(request, leader)

        return handle

    async def _denied(self, request: web.Request, key: Key) -> Denied | None:
        if self._guard is None:
            return None
        return await self._guard(request.headers, key, request.remote or "")

    async def _clusters(self, request: web.Request) -> Answer:
        """Answer with the clusters that this process leads and the token allows to read. An invalid
        token gets an error, even if this process leads none."""
        led: list[dict[str, Any]] = []
        for key in sorted(self._parts.leaders) or [EVERY]:
            denied = await self._denied(request, key)
            if denied is not None and denied.status != FORBIDDEN:
                return _error(denied.status, denied.message)
            leader = self._parts.leaders.get(key)
            if denied is None and leader is not None:
                controller = leader.controller
                led.append(
                    {
                        "namespace": key[0],
                        "cluster": key[1],
                        "active": controller.active,
                        "controllerEpoch": controller.epoch,
                        "offset": controller.image.next_offset,
                    }
                )
        return _json({"clusters": led})

    async def _cluster(self, request: web.Request, leader: Led) -> Answer:
        controller = leader.controller
        async with self._turn:
            found = await asyncio.to_thread(cluster_views.survey, controller.image)
        operator = self._parts.options.identity
        return _json(cluster_views.cluster_view(controller, leader.term.key, operator, found))

    async def _topics(self, request: web.Request, leader: Led) -> Answer:
        async with self._turn:
            rows = await asyncio.to_thread(cluster_views.topic_rows, leader.controller)
        return _json({"topics": rows})

    async def _topic(self, request: web.Request, leader: Led) -> Answer:
        image, name = leader.controller.image, request.match_info["topic"]
        topic_id = image.topic_ids.get(name)
        if topic_id is None:
            return _error(404, f"The cluster has no topic {name}.")
        topic = image.topics[topic_id]
        async with self._turn:
            view = await asyncio.to_thread(cluster_views.topic_view, leader.controller, topic)
        return _json(view)

    async def _brokers(self, request: web.Request, leader: Led) -> Answer:
        async with self._turn:
            rows = await asyncio.to_thread(cluster_views.broker_views, leader.controller)
        return _json({"brokers": rows})

    async def _what_if(self, request: web.Request, leader: Led) -> Answer:
        asked = _numbers(request.query.get("brokers", ""))
        if isinstance(asked, str):
            return _error(400, asked)
        async with self._turn:
            view = await asyncio.to_thread(what_if, leader.controller.image, asked)
        return _json(view)

    async def _rights(self, request: web.Request, leader: Led) -> Answer:
        """Answer with the `Explanation`: the decision on an operation of a principal, and the rule
        that decides it. Answer with 400 if the question is invalid."""
        security, words = leader.controller.image.security, request.query
        stated = [words.get(name, "") for name in ("principal", "host", "operation", "resource")]
        try:
            asked = question(*stated)
        except ValueError as error:
            return _error(400, str(error))
        async with self._turn:
            found = await asyncio.to_thread(explanation, security, asked)
        return _json(found)

    async def _history(self, request: web.Request, leader: Led) -> Answer:
        """Archive all changes that are committed by now, and answer with the directory of the
        archive ("" on Kubernetes) and whether that succeeded."""
        offset = leader.controller.image.next_offset
        settled = await leader.settle_history()
        place = self._parts.history_directory
        return _json({"offset": offset, "archived": settled, "directory": place})


def _numbers(text: str) -> list[int] | str:
    """Return the broker ids in a comma-separated text, or a sentence that says what is wrong with
    the text."""
    parts = [part for part in text.split(",") if part]
    if not parts or len(parts) > BROKERS_MAX:
        return (
            f"The parameter brokers must name 1 to {BROKERS_MAX} broker ids, such as ?brokers=1,2."
        )
    if not all(part.isdecimal() and len(part) < 10 for part in parts):
        return f"The parameter brokers must be a list of broker ids, not {text!r}."
    return [int(part) for part in parts]


def _json(value: object) -> Answer:
    return web.Response(body=msgspec.json.encode(value), content_type="application/json")


def _error(status: int, text: str, reason: str = "") -> Answer:
    return web.json_response({"error": text, "reason": reason}, status=status)
