"""As much of an API server as the metadata log asks for, with every fault it may have.

`Store` is the etcd and its rules: one revision for all, compare-and-set by resourceVersion and uid,
consistent lists in pages.  `HttpServer` puts it behind a real socket; `DirectApi` answers without.
"""

import asyncio
import json
import uuid
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from aiohttp import web

from plimsoll_operator.metalog.kube_api import Answer, Unanswered

Json = dict[str, Any]


@dataclass
class Request:
    method: str
    path: str
    params: dict[str, str]
    body: bytes

    @property
    def writes(self) -> bool:
        return self.method != "GET"

    @property
    def plural(self) -> str:
        return self.path.split("/")[6]

    @property
    def name(self) -> str | None:
        parts = self.path.split("/")
        return parts[7] if len(parts) > 7 else None


@dataclass
class Store:
    objects: dict[tuple[str, str], Json] = field(default_factory=dict)
    revision: int = 100
    requests: list[Request] = field(default_factory=list)
    pages: dict[str, list[Json]] = field(default_factory=dict)
    mutate: Callable[[Json], None] | None = None
    frozen_list: dict[tuple[str, str], Json] | None = None

    def handle(self, request: Request) -> Answer:
        self.requests.append(request)
        act = getattr(self, f"_{request.method.lower()}")
        status, body = act(request)
        return Answer(status=status, body=json.dumps(body, sort_keys=True).encode())

    def backup(self) -> tuple[dict[tuple[str, str], Json], int]:
        return json_copy(self.objects), self.revision

    def restore(self, backup: tuple[dict[tuple[str, str], Json], int]) -> None:
        self.objects, self.revision = json_copy(backup[0]), backup[1]

    def _get(self, request: Request) -> tuple[int, Json]:
        assert "resourceVersion" not in request.params, "such a read may be stale"
        if request.name is None:
            return 200, self._list(request)
        found = self.objects.get((request.plural, request.name))
        return (200, found) if found else refusal(404, f"{request.name} not found")

    def _list(self, request: Request) -> Json:
        token = request.params.get("continue")
        items = self.pages.pop(token) if token else self._matching(request)
        limit = int(request.params["limit"])
        metadata = {"resourceVersion": str(self.revision)}
        if len(items) > limit:
            metadata["continue"] = uuid.uuid4().hex
            self.pages[metadata["continue"]] = items[limit:]
        return {"metadata": metadata, "items": items[:limit]}

    def _matching(self, request: Request) -> list[Json]:
        wanted = [part.split("=") for part in request.params["labelSelector"].split(",")]
        source = self.objects if self.frozen_list is None else self.frozen_list
        return json_copy(
            [
                item
                for (plural, _), item in sorted(source.items())
                if plural == request.plural
                and all(item["metadata"]["labels"].get(key) == value for key, value in wanted)
            ]
        )

    def _post(self, request: Request) -> tuple[int, Json]:
        item = json.loads(request.body)
        key = (request.plural, item["metadata"]["name"])
        if key in self.objects:
            return refusal(409, f"{key[1]} already exists")
        item["metadata"]["uid"] = str(uuid.uuid4())
        return 201, self._save(key, item)

    def _put(self, request: Request) -> tuple[int, Json]:
        assert request.name is not None
        key = (request.plural, request.name)
        item, old = json.loads(request.body), self.objects.get(key)
        if old is None:
            return refusal(404, f"{request.name} not found")
        for token in ("uid", "resourceVersion"):
            if item["metadata"][token] != old["metadata"][token]:
                return refusal(409, f"the {token} of {request.name} has changed")
        return 200, self._save(key, item)

    def _delete(self, request: Request) -> tuple[int, Json]:
        assert request.name is not None
        key = (request.plural, request.name)
        if (old := self.objects.get(key)) is None:
            return refusal(404, f"{request.name} not found")
        if json.loads(request.body)["preconditions"]["uid"] != old["metadata"]["uid"]:
            return refusal(409, "another uid")
        self.revision += 1
        del self.objects[key]
        return 200, old

    def _save(self, key: tuple[str, str], item: Json) -> Json:
        self.revision += 1
        item["metadata"]["resourceVersion"] = str(self.revision)
        if self.mutate is not None:
            self.mutate(item)
        self.objects[key] = item
        return item


def json_copy(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: json_copy(one) for key, one in value.items()}
    return [json_copy(one) for one in value] if isinstance(value, list) else value


def refusal(status: int, message: str) -> tuple[int, Json]:
    return status, {"kind": "Status", "message": message}


Fault = Callable[[Request], Awaitable[Answer]]
"""Takes a request's place; raises `Unanswered` to close the connection without a reply."""


class Faults:
    """What goes wrong with the next writes, in order; then everything is well again."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._next: deque[tuple[str, Fault]] = deque()
        self.late: list[Request] = []
        self.gate = asyncio.Event()
        self._drained = asyncio.Event()

    def add(self, method: str, *faults: Fault) -> None:
        self._next += [(method, fault) for fault in faults]
        self._drained.clear()

    async def handle(self, request: Request) -> Answer:
        if self._next and self._next[0][0] == request.method:
            fault = self._next.popleft()[1]
            if not self._next:
                self._drained.set()
            return await fault(request)
        return self._store.handle(request)

    async def drained(self) -> None:
        """Until the last of the faults has begun."""
        async with asyncio.timeout(5):
            await self._drained.wait()

    @property
    def all_happened(self) -> bool:
        return not self._next

    async def lose_reply(self, request: Request) -> Answer:
        self._store.handle(request)
        raise Unanswered("the reply was lost")

    async def lose_request(self, request: Request) -> Answer:
        raise Unanswered("the request was lost")

    async def delay(self, request: Request) -> Answer:
        """No reply now; the request happens when `land` is called."""
        self.late.append(request)
        raise Unanswered("the request is on its way")

    async def throttle(self, request: Request) -> Answer:
        return Answer(status=429, body=b'{"message": "too many requests"}')

    async def fail_before(self, request: Request) -> Answer:
        raise Unanswered("500: nothing happened, but who knows")

    async def fail_after(self, request: Request) -> Answer:
        self._store.handle(request)
        return Answer(status=504, body=b'{"message": "etcd timed out"}')

    async def forbid(self, request: Request) -> Answer:
        return Answer(status=403, body=b'{"message": "exceeded quota"}')

    async def too_large(self, request: Request) -> Answer:
        return Answer(status=413, body=b"request entity too large")

    async def hang(self, request: Request) -> Answer:
        """No reply until the caller gives up; then nothing happens."""
        await self.gate.wait()
        raise Unanswered("hung")

    def land(self) -> None:
        late, self.late = self.late, []
        for request in late:
            self._store.handle(request)


class DirectApi:
    """The same answers without a socket."""

    def __init__(self, faults: Faults) -> None:
        self._faults = faults

    async def request(
        self, method: str, path: str, *, params: dict[str, str] | None = None, body: bytes = b""
    ) -> Answer:
        request = Request(method=method, path=path, params=dict(params or {}), body=body)
        answer = await self._faults.handle(request)
        if answer.status >= 500:
            raise Unanswered(answer.sentence)
        return answer

    async def close(self) -> None:
        pass


class HttpServer:
    """A socket in front of a store."""

    def __init__(self, faults: Faults) -> None:
        self._faults = faults
        application = web.Application(client_max_size=4 * 1024 * 1024)
        application.router.add_route("*", "/{path:.*}", self._serve)
        self._runner = web.AppRunner(application, shutdown_timeout=1.0)
        self.url = ""

    async def start(self) -> None:
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        host, port = self._runner.addresses[0][:2]
        self.url = f"http://{host}:{port}"

    async def stop(self) -> None:
        self._faults.gate.set()
        await self._runner.cleanup()

    async def _serve(self, http: web.Request) -> web.Response:
        request = Request(
            method=http.method,
            path=unquote(http.path),
            params=dict(http.query),
            body=await http.read(),
        )
        try:
            answer = await self._faults.handle(request)
        except Unanswered:
            assert http.transport is not None
            http.transport.abort()
            return web.Response(status=500)
        return web.Response(status=answer.status, body=answer.body, content_type="application/json")
