"""`MemoryApiServer`: turns a request into an answer as a real API server does, and its transport.

The server is deterministic: time and uids are passed in, nothing waits, nothing is random. Its
behaviour is stated as a contract (`tests/plimsoll_operator/kube/contract.py`), which a real API
server passes too. It leaves out authentication, admission beyond the namespace's, CEL rules of
CRDs, conversion between versions, old resourceVersions in reads, and `managedFields`. Events are
stored separately for `v1` and `events.k8s.io`. `MemoryTransport` answers at once and loses nothing;
a simulator adds latency and loss around it.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from typing import Any

import msgspec
import yaml

from plimsoll_operator.api_server.account_tokens import AccountTokens
from plimsoll_operator.api_server.defaults import with_defaults
from plimsoll_operator.api_server.kinds import Resource
from plimsoll_operator.api_server.kinds import custom as resources_of
from plimsoll_operator.api_server.request_selectors import field_test, label_test
from plimsoll_operator.api_server.status_errors import (
    StatusError,
    bad_request,
    details,
    expired,
    no_such_path,
)
from plimsoll_operator.api_server.store import Store, StoredObject
from plimsoll_operator.api_server.stored_object import timestamp, typed
from plimsoll_operator.api_server.watches import Encode, Selection, Watch
from plimsoll_operator.api_server.writes import (
    APPLY,
    MERGE,
    STRATEGIC,
    RequestTarget,
    Writes,
)
from plimsoll_operator.kube import resources
from plimsoll_operator.kube.errors import answered
from plimsoll_operator.kube.kube_api import JSON, HttpRequest, HttpResponse, Object
from plimsoll_operator.kube.resources import SERVICE_ACCOUNTS, Kind
from plimsoll_process.waits import set_within

BODY_BYTES_MAX = 3 * 2**20
PROTOBUF = "application/vnd.kubernetes.protobuf"
JSON_PATCH = "application/json-patch+json"
MEDIA = frozenset({JSON, MERGE, STRATEGIC}) | APPLY
"""Media types that a request body may have. A browser sends none of them to another site without a
preflight request."""
TARGETS_MAX = 1_000
"""Bound on the cached results of `target`, one for each URL path."""
PAGES_MAX = 1_000
"""Bound on the lists that clients have fetched in part. Beyond it the oldest is dropped; the
request for its next page gets the error Expired."""


class MemoryApiServer:
    """An API server that holds its objects in memory. It starts with the given `namespaces` and
    `definitions` (CustomResourceDefinitions)."""

    def __init__(
        self,
        now_ms: Callable[[], int],
        new_uid: Callable[[], str],
        *,
        definitions: Iterable[Object] = (),
        namespaces: Iterable[str] = ("default",),
        tokens: AccountTokens | None = None,
    ) -> None:
        self.now_ms = now_ms
        # Signer of ServiceAccount tokens; None if there is none.
        self._tokens = tokens
        self.store = Store()
        self.writes = Writes(self.store, now_ms, new_uid)
        self._pages: OrderedDict[str, list[StoredObject]] = OrderedDict()
        self._pages_made = 0
        # Targets by path, valid while the same kinds are served.
        self._targets: dict[str, RequestTarget] = {}
        self._targets_as_of = 0
        for definition in definitions:
            self.seed(resources.CRDS, definition)
        for name in namespaces:
            self.seed(resources.NAMESPACES, {"metadata": {"name": name}})

    def handle(self, request: HttpRequest) -> HttpResponse:
        """Return the response to one request. An invalid request gets an error response; nothing is
        raised."""
        try:
            status, body = self._answer(request)
        except StatusError as error:
            status, body = error.status, msgspec.json.encode(error.body)
        server_ms = self.now_ms() // 1_000 * 1_000
        return HttpResponse(status=status, body=body, server_ms=server_ms)

    def watch(self, request: HttpRequest) -> Watch:
        """Start the watch that the request asks for. Raises `StatusError` for an unknown path or an
        invalid resourceVersion."""
        target = self.target(request.path)
        version = request.params.get("resourceVersion", "")
        return Watch(self.store, self._selection(target, request), version)

    def seed(self, kind: Kind, body: Object) -> StoredObject:
        """Store an object on behalf of the host, without validation, replacing one of that name,
        and return it. The status, uid and times that `body` states are stored as stated.

        Of the uid, creation time and generation, those that `body` does not state keep their stored
        values, or get those of a new object; so does a status for a new one. A new uid derives from
        the name, so that seeding takes none from `new_uid`.
        """
        resource = self.store.resources[kind.path()]
        meta = body["metadata"]
        known = self.store.get(resource, (meta.get("namespace") or "", meta["name"]))
        before = {} if known is None else known.metadata
        kept = {k: before[k] for k in ("uid", "creationTimestamp", "generation") if k in before}
        new = {
            "uid": f"{kind.plural}-{meta.get('namespace', '')}-{meta['name']}",
            "creationTimestamp": timestamp(self.now_ms()),
            **({"generation": 1} if resource.has_generation else {}),
        }
        status = {"status": resource.new_status} if resource.new_status is not None else {}
        out = {**status, **body, "metadata": {**new, **kept, **meta}}
        out = typed(resource, {"apiVersion": kind.api_version, "kind": kind.kind, **out})
        if kind == resources.CRDS:
            self.store.serve(resources_of(out))
        if resource.typed:
            out = with_defaults(kind, out)
        return self.store.put(resource, out, None if known is None else known.applied)

    # --- what is meant ----------------------------------------------------------------------------

    def target(self, path: str) -> RequestTarget:
        """Return the kind, namespace, name and subresource that a URL path addresses. Raises
        StatusError (404) for an unknown path."""
        if self._targets_as_of != self.store.servings or len(self._targets) >= TARGETS_MAX:
            self._targets_as_of = self.store.servings
            self._targets.clear()
        found = self._targets.get(path)
        if found is None:
            found = self._targets[path] = self._parsed(path)
        return found

    def _parsed(self, path: str) -> RequestTarget:
        parts = path.strip("/").split("/")
        head = 2 if parts[0] == "api" else 3
        root, rest = "/" + "/".join(parts[:head]), parts[head:]
        served = self.store.resources
        namespace = None
        if len(rest) > 2 and rest[0] == "namespaces" and f"{root}/{rest[2]}" in served:
            namespace, rest = rest[1], rest[2:]
        found = served.get(f"{root}/{rest[0]}") if rest else None
        name = rest[1] if len(rest) > 1 else None
        if found is None or len(rest) > 3:
            raise no_such_path()
        if name is not None and found.kind.namespaced and namespace is None:
            raise no_such_path()
        status = len(rest) == 3
        if status and not (rest[2] == "status" and found.has_status):
            raise no_such_path()
        return RequestTarget(resource=found, namespace=namespace, name=name, status=status)

    def _answer(self, request: HttpRequest) -> tuple[int, bytes]:
        if len(request.body) > BODY_BYTES_MAX:
            text = f"Request entity too large: limit is {BODY_BYTES_MAX}"
            raise StatusError(413, "RequestEntityTooLarge", text)
        if self._tokens is not None and self.is_of_tokens(request):
            return self._of_tokens(self._tokens, request)
        target = self.target(request.path)
        if request.method == "GET" and target.name is None:
            return 200, self._list(target, request)
        if request.method == "GET":
            return 200, _encode_for(request.accept)(self.writes.existing(target))
        if request.method == "DELETE":
            return 200, self._delete(target, request)
        status, stored = self._write(target, request)
        return status, _encode_for(request.accept)(stored)

    def is_of_tokens(self, request: HttpRequest) -> bool:
        """Return True if `AccountTokens` answers the request: a TokenRequest, or a read of the
        OpenID documents."""
        if self._tokens is None:
            return False
        if request.method == "GET":
            return request.path in self._tokens.documents
        parts = request.path.split("/")[-3:]
        return request.method == "POST" and parts[::2] == [SERVICE_ACCOUNTS.plural, "token"]

    def _of_tokens(self, tokens: AccountTokens, request: HttpRequest) -> tuple[int, bytes]:
        if request.method == "GET":
            return 200, msgspec.json.encode(tokens.documents[request.path])
        account = self.writes.existing(self.target(request.path.removesuffix("/token"))).body
        return 201, msgspec.json.encode(tokens.issue(account, _decoded(request)))

    def _write(self, target: RequestTarget, request: HttpRequest) -> tuple[int, StoredObject]:
        params, body = request.params, _decoded(request)
        dry_run = "dryRun" in params
        if request.method == "POST" and target.name is None:
            return 201, self.writes.create(target, body, dry_run=dry_run)
        if request.method == "PUT" and target.name is not None:
            return 200, self.writes.replace(target, body, dry_run=dry_run)
        if request.method == "PATCH" and target.name is not None:
            media = request.content_type.partition(";")[0]
            stored, is_new = self.writes.patch(target, body, media, params)
            return (201 if is_new else 200), stored
        text = "the server does not allow this method on the requested resource"
        raise StatusError(405, "MethodNotAllowed", text)

    def _delete(self, target: RequestTarget, request: HttpRequest) -> bytes:
        options = _decoded(request) if request.body else {}
        for name in ("propagationPolicy", "gracePeriodSeconds"):
            if name in request.params:
                options.setdefault(name, request.params[name])
        dry_run = "dryRun" in request.params or bool(options.get("dryRun"))
        if target.name is not None:
            return self._delete_one(target, options, dry_run=dry_run)
        chosen = self._selection(target, request)
        for stored in self._selected(chosen):
            namespace, name = stored.key
            one = RequestTarget(resource=target.resource, namespace=namespace or None, name=name)
            self._delete_one(one, options, dry_run=dry_run)
        return self._encoded_list(chosen, [], {})

    def _delete_one(self, target: RequestTarget, options: Object, *, dry_run: bool) -> bytes:
        uid = self.writes.existing(target).metadata["uid"]
        left = self.writes.delete(target, options, dry_run=dry_run)
        if left is not None:
            return left.encoded
        found = {**details(target.resource.kind, target.name or ""), "uid": uid}
        body = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
        return msgspec.json.encode({**body, "details": found})

    # --- lists ------------------------------------------------------------------------------------

    def _list(self, target: RequestTarget, request: HttpRequest) -> bytes:
        """Return one page of a list, encoded. All pages of one list show the objects as of its
        first page. Raises StatusError (Expired) if the page that the request continues with was
        dropped."""
        chosen = self._selection(target, request)
        token = request.params.get("continue")
        if token:
            found = self._pages.pop(token, None)
            if found is None:
                raise expired("The provided continue parameter is too old")
            revision = token.partition(".")[0]
        else:
            found, revision = self._selected(chosen), str(self.store.revision)
        metadata = {"resourceVersion": revision}
        limit = int(request.params.get("limit") or 0)
        if limit and len(found) > limit:
            self._pages_made += 1
            metadata["continue"] = f"{revision}.{self._pages_made}"
            self._pages[metadata["continue"]] = found[limit:]
            if len(self._pages) > PAGES_MAX:
                self._pages.popitem(last=False)
            found = found[:limit]
        return self._encoded_list(chosen, found, metadata)

    def _selection(self, target: RequestTarget, request: HttpRequest) -> Selection:
        return Selection(
            resource=target.resource,
            namespace=target.namespace,
            takes=_selector_of(target.resource, request.params),
            encode=_encode_for(request.accept),
        )

    def _selected(self, chosen: Selection) -> list[StoredObject]:
        listed = self.store.listed(chosen.resource, chosen.namespace)
        return [stored for stored in listed if chosen.takes(stored)]

    def _encoded_list(
        self, chosen: Selection, found: list[StoredObject], metadata: Mapping[str, str]
    ) -> bytes:
        kind = chosen.resource.kind
        partial = chosen.encode is _metadata_of
        head = {
            "kind": "PartialObjectMetadataList" if partial else f"{kind.kind}List",
            "apiVersion": "meta.k8s.io/v1" if partial else kind.api_version,
            "metadata": metadata,
        }
        items = b",".join(_metadata_of(one) if partial else one.item for one in found)
        return msgspec.json.encode(head)[:-1] + b',"items":[' + items + b"]}"


def _selector_of(resource: Resource, params: Mapping[str, str]) -> Callable[[StoredObject], bool]:
    """Return a function that returns True if an object matches the label and field selectors in the
    parameters of a request. Raises StatusError for an invalid selector."""
    labels = label_test(params.get("labelSelector", ""))
    if not params.get("fieldSelector"):
        return lambda stored: labels(stored.labels)
    fields = field_test(params["fieldSelector"], resource.selectable)
    return lambda stored: labels(stored.labels) and fields(stored.body)


def _whole(stored: StoredObject) -> bytes:
    return stored.encoded


def _metadata_of(stored: StoredObject) -> bytes:
    return msgspec.json.encode(
        {
            "kind": "PartialObjectMetadata",
            "apiVersion": "meta.k8s.io/v1",
            "metadata": stored.body["metadata"],
        }
    )


def _encode_for(accept: str) -> Encode:
    """Return the encoder for the header Accept: of metadata alone if it asks for
    `PartialObjectMetadata` or a list of it, else of whole objects."""
    return _metadata_of if "as=PartialObjectMetadata" in accept else _whole


def _decoded(request: HttpRequest) -> dict[str, Any]:
    """Return the request's body as an object: JSON, or for server-side apply also YAML. Raises
    `StatusError` for another media type, or a body that is not an object."""
    media = request.content_type.partition(";")[0].strip().lower()
    if media == JSON_PATCH:
        text = "JSON patches are not supported: use kubectl patch --type merge"
        raise StatusError(415, "UnsupportedMediaType", text)
    if media not in MEDIA:
        said = "protobuf is not supported" if media == PROTOBUF else f"not {media or 'nothing'}"
        text = (
            "the body of the request was in an unknown format - accepted media types include:"
            f" {', '.join(sorted(MEDIA))}; {said}"
        )
        raise StatusError(415, "UnsupportedMediaType", text)
    try:
        body = msgspec.json.decode(request.body)
    except msgspec.DecodeError as error:
        if media not in APPLY:
            raise bad_request(f"the body cannot be read: {error}") from error
        body = yaml.safe_load(request.body)
    if not isinstance(body, dict):
        raise bad_request("the body is not an object")
    return body


WATCH_SECONDS_DEFAULT = 300.0


class MemoryTransport:
    """A `kube.kube_api.Transport` that passes requests to a `MemoryApiServer` in the same
    process."""

    def __init__(self, server: MemoryApiServer) -> None:
        self.server = server

    async def send(self, request: HttpRequest) -> HttpResponse:
        return self.server.handle(request)

    async def watch(self, request: HttpRequest) -> AsyncGenerator[bytes, None]:
        try:
            watch = self.server.watch(request)
        except StatusError as refused:
            body = msgspec.json.encode(refused.body)
            raise answered(request.method, request.path, refused.status, body) from refused
        woken = asyncio.Event()
        watch.on_line = woken.set
        seconds = float(request.params.get("timeoutSeconds") or WATCH_SECONDS_DEFAULT)
        loop = asyncio.get_running_loop()
        end_s = loop.time() + seconds
        try:
            while True:
                woken.clear()
                for line in watch.take():
                    yield line
                if watch.ended:
                    return
                if not watch.lines and not await set_within(woken, max(end_s - loop.time(), 0)):
                    return
        finally:
            watch.close()

    async def close(self) -> None:
        """Do nothing: no connection is open."""
