"""The API server in memory, with every fault that the metadata log may meet.

`Store` is the server as these tests look at it, `Faults` what goes wrong between it and a client.
`HttpServer` puts both behind a real socket; `DirectApi` answers without.
"""

import asyncio
import itertools
import json
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from aiohttp import web

from plimsoll_operator.api_server.kinds import shipped
from plimsoll_operator.api_server.server import MemoryApiServer
from plimsoll_operator.api_server.store import Backup, StoredObject
from plimsoll_operator.kube.kube_api import HttpRequest
from plimsoll_operator.metalog.kube_objects import Answer, Unanswered

Json = dict[str, Any]
Key = tuple[str, str]
KINDS = ("metadatabatches", "metadatasnapshots")


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


class Objects(Mapping[Key, Json]):
    """What the server holds of the metadata log, as it is; no caller changes a body in place."""

    def __init__(self, server: MemoryApiServer) -> None:
        self._server = server
        store = server.store
        self._kinds = [r for r in store.resources.values() if r.kind.plural in KINDS]

    def __getitem__(self, key: Key) -> Json:
        return self.stored(key).body

    def __iter__(self) -> Iterator[Key]:
        for resource in self._kinds:
            for _, name in self._server.store.table(resource):
                yield resource.kind.plural, name

    def __len__(self) -> int:
        return sum(len(self._server.store.table(resource)) for resource in self._kinds)

    def __delitem__(self, key: Key) -> None:
        self._server.store.remove(self.stored(key))

    def clear(self) -> None:
        for key in list(self):
            del self[key]

    def edit(self, key: Key, **metadata: object) -> None:
        """Another client changes the object's metadata."""
        stored = self.stored(key)
        body = {**stored.body, "metadata": {**stored.metadata, **metadata}}
        self._server.store.put(stored.resource, body)

    def recreate(self, key: Key, **spec: object) -> None:
        """Another client deletes the object and creates it again, under another uid."""
        stored = self.stored(key)
        self._server.store.remove(stored)
        metadata = {**stored.metadata, "uid": f"{stored.metadata['uid']}-again"}
        self._server.store.put(stored.resource, {**stored.body, "metadata": metadata, "spec": spec})

    def stored(self, key: Key) -> StoredObject:
        found = next(
            (
                stored
                for resource in self._kinds
                if resource.kind.plural == key[0]
                for place, stored in self._server.store.table(resource).items()
                if place[1] == key[1]
            ),
            None,
        )
        if found is None:
            raise KeyError(key)
        return found


class Store:
    """The API server in memory, as the metadata log's tests look at it.

    `requests`: what came.  `mutate`: what changes a body on its way in.  `frozen`: an earlier state
    that lists are answered from."""

    def __init__(self) -> None:
        self.server = _a_server()
        self.objects = Objects(self.server)
        self.requests: list[Request] = []
        self.mutate: Callable[[Json], None] | None = None
        self.frozen: Backup | None = None

    def handle(self, request: Request) -> Answer:
        assert "resourceVersion" not in request.params, "such a read may be stale"
        self.requests.append(request)
        server, body = self.server, request.body
        if self.frozen is not None and request.method == "GET" and request.name is None:
            server = _a_server()
            server.store.restore(self.frozen)
        if self.mutate is not None and request.method in ("POST", "PUT"):
            item = json.loads(body)
            self.mutate(item)
            body = json.dumps(item).encode()
        found = server.handle(
            HttpRequest(method=request.method, path=request.path, params=request.params, body=body)
        )
        return Answer(status=found.status, body=found.body)

    def backup(self) -> Backup:
        return self.server.store.backup()

    def restore(self, backup: Backup) -> None:
        self.server.store.restore(backup)

    def restore_kind(self, plural: str, backup: Backup) -> None:
        """Objects of one kind are as they were; everything else stays."""
        now = self.backup()
        older = {root: table for root, table in backup.tables.items() if root.endswith(plural)}
        self.restore(Backup(tables={**now.tables, **older}, revision=now.revision))


def _a_server() -> MemoryApiServer:
    uids = itertools.count(1)
    return MemoryApiServer(
        lambda: 1_800_000_000_000,
        lambda: f"uid-{next(uids)}",
        definitions=shipped(),
        namespaces=("default", "kafka"),
    )


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
        async with asyncio.timeout(30):
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
