"""`KubeApi` over the API server in memory, with a test's hand on both ends.

A test puts objects there as they may be found, reads what was asked, and has calls fail on order.
"""

import itertools
import json
from collections.abc import AsyncIterator, Callable

from plimsoll_operator.api_server.kinds import shipped
from plimsoll_operator.api_server.server import MemoryApiServer, MemoryTransport
from plimsoll_operator.api_server.status_errors import StatusError
from plimsoll_operator.api_server.store import StoredObject
from plimsoll_operator.kube.errors import ApiError
from plimsoll_operator.kube.kube_api import APPLY, HttpRequest, HttpResponse, KubeApi, Object
from plimsoll_operator.kube.resources import Kind

Key = tuple[str, str | None, str]
NOW_MS = 1_000_000


class ScriptedKube(KubeApi):
    """`fail`: the next calls raise these, one each (None: that one succeeds).  `refuse`: what a
    verb always raises.  `calls`: (verb, plural, name), where the name of a list is its namespace;
    a dry run is a `try`, a deletion without grace a `force`."""

    def __init__(self) -> None:
        self.server_ms = NOW_MS
        # What time certificates go by, if a test says it: most tell the host's clock alone.
        self.said_ms: int | None = None
        self.calls: list[tuple[str, str, str]] = []
        self.fail: list[ApiError | None] = []
        self.refuse: dict[str, ApiError] = {}
        uids = itertools.count(1)
        self._new_uid: Callable[[], str] = lambda: f"uid-{next(uids)}"
        self.server = MemoryApiServer(
            lambda: self.server_ms,
            self._new_uid,
            definitions=shipped(),
            namespaces=("kafka",),
        )
        super().__init__(_ScriptedTransport(self))

    @property
    def answered_ms(self) -> int | None:
        """See `KubeApi`."""
        return self.said_ms

    @answered_ms.setter
    def answered_ms(self, _: int | None) -> None:
        """A test says it."""

    # --- a test's changes, which no client under test requested -----------------------------------

    def put(self, kind: Kind, body: Object) -> Object:
        """Make or change an object, with whatever status, uid and times the body states."""
        meta = dict(body["metadata"])
        meta.pop("resourceVersion", None)
        known = self._stored(kind, meta.get("namespace"), meta["name"])
        if known is None:
            meta.setdefault("uid", self._new_uid())
        elif "generation" in known.metadata:
            edited = known.body.get("spec") != body.get("spec")
            meta["generation"] = known.metadata["generation"] + edited
        return _copy(self.server.seed(kind, {**body, "metadata": meta}))

    def drop(self, kind: Kind, namespace: str | None, name: str) -> None:
        found = self._stored(kind, namespace, name)
        assert found is not None, f"{kind.kind} {name} is not there"
        self.server.store.remove(found)

    def find(self, kind: Kind, namespace: str | None, name: str) -> Object:
        """A copy: what is changed in it, `put` stores."""
        found = self._stored(kind, namespace, name)
        assert found is not None, f"{kind.kind} {name} is not there"
        return _copy(found)

    def set_metadata(
        self, kind: Kind, namespace: str | None, name: str, **fields: object
    ) -> Object:
        """Change some fields of an object's metadata."""
        found = self.find(kind, namespace, name)
        return self.put(kind, {**found, "metadata": {**found["metadata"], **fields}})

    @property
    def objects(self) -> dict[Key, Object]:
        """Copies of all of them, by (plural, namespace, name)."""
        store = self.server.store
        return {
            (resource.kind.plural, key[0] or None, key[1]): _copy(stored)
            for resource in store.resources.values()
            for key, stored in store.table(resource).items()
        }

    def names(self, kind: Kind) -> list[str]:
        """Of all objects of a kind, sorted."""
        return sorted(name for _, name in self.server.store.table(self._resource(kind)))

    def _resource(self, kind: Kind):
        return self.server.store.resources[kind.path()]

    def _stored(self, kind: Kind, namespace: str | None, name: str) -> StoredObject | None:
        return self.server.store.get(self._resource(kind), (namespace or "", name))

    # --- what happens to a call -------------------------------------------------------------------

    def begin(self, request: HttpRequest) -> None:
        """Remember the call; raises what it is to fail with."""
        try:
            target = self.server.target(request.path)
        except StatusError:  # of a kind that is not served: the server says so itself
            return
        verb = _verb(request, target.name is None)
        name = target.name or request.params.get("name") or target.namespace or ""
        if request.method == "POST":
            name = json.loads(request.body)["metadata"]["name"]
        self.calls.append((verb, target.resource.kind.plural, name))
        failure = self.fail.pop(0) if self.fail else None
        if failure is not None:
            raise failure
        if verb in self.refuse:
            raise self.refuse[verb]


class _ScriptedTransport:
    def __init__(self, kube: ScriptedKube) -> None:
        self._kube = kube

    async def send(self, request: HttpRequest) -> HttpResponse:
        self._kube.begin(request)
        return self._kube.server.handle(request)

    def watch(self, request: HttpRequest) -> AsyncIterator[bytes]:
        return MemoryTransport(self._kube.server).watch(request)

    async def close(self) -> None: ...


def _verb(request: HttpRequest, collection: bool) -> str:
    if request.method == "GET":
        return "list" if collection else "get"
    if request.method == "PUT":
        return "try" if "dryRun" in request.params else "replace"
    if request.method == "PATCH" and request.path.endswith("/status"):
        return "status"
    if request.method == "PATCH" and request.content_type == APPLY:
        return "apply"
    if request.method == "DELETE":
        return "force" if "gracePeriodSeconds" in json.loads(request.body) else "delete"
    return {"POST": "create", "PATCH": "merge"}[request.method]


def _copy(stored: StoredObject) -> Object:
    return dict(json.loads(stored.encoded))
