"""As much of a Kubernetes API server as a controller asks for, with everything that goes wrong.

`Etcd` is the store and its rules: one revision for all objects, compare-and-set by resourceVersion
and uid, consistent lists.  `SimulatedLogApi` and `SimulatedLeaseApi` are what a process sees of it
through a network and an API server that may be slow, away, or lose requests and replies; a request
without an answer may still happen later.
"""

from __future__ import annotations

import asyncio
import copy
import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from plimsoll_operator.kube.errors import Conflict, NotFound, Unavailable
from plimsoll_operator.kube.resources import Kind
from plimsoll_operator.metalog.kube_api import Answer, Unanswered
from plimsoll_sim.engine.loop import SimLoop
from plimsoll_sim.engine.process import Process, current
from plimsoll_sim.environment.latency import QUICK_US, LatencyUs

Json = dict[str, Any]
Act = tuple[str, str, dict[str, str], bytes]
"""A request: method, path, parameters, body."""
Backup = tuple[dict[tuple[str, str], Json], int]
GIVE_UP_US = 2_000_000
LEASE_GIVE_UP_US = 1_000_000
PAGE_MS = 60


@dataclass
class Weather:
    """How the API server is doing.  Chances are per request; `down` answers nobody, `hung` takes
    requests and does not answer.  `kept` are a process's writes of one kind of object that are on
    their way for as long as its entry is there: nobody answers them."""

    lose_request: float = 0.0
    lose_reply: float = 0.0
    late: float = 0.0
    throttle: float = 0.0
    down: bool = False
    hung: bool = False
    latency_us: LatencyUs = QUICK_US
    away_from: dict[Process, None] = field(default_factory=dict)
    kept: dict[tuple[Process, str], list[Act]] = field(default_factory=dict)

    def calm(self) -> None:
        self.lose_request = self.lose_reply = self.late = self.throttle = 0.0
        self.down = self.hung = False
        self.away_from.clear()
        self.kept.clear()


class Etcd:
    """`watchers` hear of every stored object, before the writer does."""

    def __init__(self, rng: random.Random) -> None:
        self.objects: dict[tuple[str, str], Json] = {}
        self.revision = 100
        self.watchers: list[Callable[[str, Json], None]] = []
        self._rng = rng

    def backup(self) -> Backup:
        return copy.deepcopy(self.objects), self.revision

    def restore(self, backup: Backup) -> None:
        self.objects, self.revision = copy.deepcopy(backup[0]), backup[1]

    def handle(self, method: str, path: str, params: dict[str, str], body: bytes) -> Answer:
        parts = path.split("/")
        plural, name = parts[6], parts[7] if len(parts) > 7 else None
        act = getattr(self, f"_{method.lower()}")
        status, found = act(plural, name, params, body)
        return Answer(status=status, body=json.dumps(found, sort_keys=True).encode())

    def _get(self, plural: str, name: str | None, params: dict[str, str], _: bytes) -> Any:
        if name is None:
            wanted = [part.split("=") for part in params["labelSelector"].split(",")]
            items = [
                item
                for (kind, _), item in sorted(self.objects.items())
                if kind == plural
                and all(item["metadata"]["labels"].get(key) == value for key, value in wanted)
            ]
            return 200, {"metadata": {"resourceVersion": str(self.revision)}, "items": items}
        found = self.objects.get((plural, name))
        return (200, found) if found else _refusal(404, f"{name} not found")

    def _post(self, plural: str, _: str | None, __: dict[str, str], body: bytes) -> Any:
        item = json.loads(body)
        key = (plural, item["metadata"]["name"])
        if key in self.objects:
            return _refusal(409, f"{key[1]} already exists")
        item["metadata"]["uid"] = f"uid-{self._rng.getrandbits(64):016x}"
        return 201, self.save(*key, item)

    def _put(self, plural: str, name: str | None, _: dict[str, str], body: bytes) -> Any:
        assert name is not None
        item, old = json.loads(body), self.objects.get((plural, name))
        if old is None:
            return _refusal(404, f"{name} not found")
        for token in ("uid", "resourceVersion"):
            if item["metadata"][token] != old["metadata"][token]:
                return _refusal(409, f"the {token} of {name} has changed")
        return 200, self.save(plural, name, item)

    def _delete(self, plural: str, name: str | None, _: dict[str, str], body: bytes) -> Any:
        assert name is not None
        old = self.objects.get((plural, name))
        if old is None:
            return _refusal(404, f"{name} not found")
        if json.loads(body)["preconditions"]["uid"] != old["metadata"]["uid"]:
            return _refusal(409, "another uid")
        self.revision += 1
        del self.objects[plural, name]
        return 200, old

    def save(self, plural: str, name: str, item: Json) -> Json:
        self.revision += 1
        item["metadata"]["resourceVersion"] = str(self.revision)
        self.objects[plural, name] = item
        for watcher in self.watchers:
            watcher(plural, item)
        return item


def _refusal(status: int, message: str) -> tuple[int, Json]:
    return status, {"kind": "Status", "message": message}


class SimulatedLogApi:
    """`plimsoll_operator.metalog.kube_api.Api`, for the process that makes it."""

    def __init__(self, etcd: Etcd, weather: Weather, loop: SimLoop, rng: random.Random) -> None:
        process = current()
        assert process is not None
        self._process = process
        self._etcd = etcd
        self._weather = weather
        self._loop = loop
        self._rng = rng

    async def request(
        self, method: str, path: str, *, params: dict[str, str] | None = None, body: bytes = b""
    ) -> Answer:
        weather, rng = self._weather, self._rng
        await self._travel()
        if not self._reachable() or rng.random() < weather.lose_request:
            await self._give_up()
        if rng.random() < weather.throttle:
            return Answer(status=429, body=b'{"message": "too many requests"}')
        act = (method, path, dict(params or {}), body)
        kept = weather.kept.get((self._process, path.split("/")[6]))
        if method != "GET" and kept is not None:
            kept.append(act)
            await self._give_up()
        if method != "GET" and rng.random() < weather.late:
            delay_us = rng.randint(1_000, 8_000_000)
            self._loop.at_us(self._loop.now_us + delay_us, self._etcd.handle, *act)
            await self._give_up()
        answer = self._etcd.handle(*act)
        await self._travel()
        if not self._reachable() or rng.random() < weather.lose_reply:
            await self._give_up()
        return answer

    async def close(self) -> None:
        pass

    def _reachable(self) -> bool:
        weather = self._weather
        return not (weather.down or weather.hung or self._process in weather.away_from)

    async def _travel(self) -> None:
        await asyncio.sleep(self._rng.randint(*self._weather.latency_us) / 1_000_000)

    async def _give_up(self) -> None:
        # A connection that was closed is known at once; silence takes its time.
        quick = self._weather.down or self._rng.random() < 0.3
        await asyncio.sleep(0.001 if quick else GIVE_UP_US / 1_000_000)
        raise Unanswered("no answer")


class SimulatedLeaseApi:
    """`leadership.lease.LeaseApi` on the same store and through the same weather."""

    def __init__(self, api: SimulatedLogApi, etcd: Etcd) -> None:
        self._api = api
        self._etcd = etcd

    async def get(self, kind: Kind, namespace: str | None, name: str, *, timeout_s: float) -> Json:
        return await self._ask(timeout_s, "GET", kind, name, b"")

    async def create(self, kind: Kind, body: Json, *, timeout_s: float) -> Json:
        name = body["metadata"]["name"]
        body = {**body, "metadata": {**body["metadata"], "labels": {}}}
        return await self._ask(timeout_s, "POST", kind, None, json.dumps(body).encode(), name)

    async def replace(self, kind: Kind, body: Json, *, timeout_s: float) -> Json:
        name = body["metadata"]["name"]
        return await self._ask(timeout_s, "PUT", kind, name, json.dumps(body).encode())

    async def _ask(  # the parts of one request
        self, timeout_s: float, method: str, kind: Kind, name: str | None, *rest: Any
    ) -> Json:
        body = rest[0]
        path = f"/apis/{kind.api_version}/namespaces/sim/{kind.plural}"
        path = f"{path}/{name}" if name else path
        try:
            async with asyncio.timeout(timeout_s):
                answer = await self._api.request(method, path, body=body)
        except (Unanswered, TimeoutError) as error:
            raise Unavailable(0, str(error) or "no answer") from None
        found: Json = json.loads(answer.body)
        if answer.status == 404:
            raise NotFound(404, "no such Lease")
        if answer.status == 409:
            raise Conflict(409, "the Lease has changed")
        if answer.status >= 400:
            raise Unavailable(answer.status, "refused")
        return found
