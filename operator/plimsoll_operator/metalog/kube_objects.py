"""Access to the objects of the metadata log on Kubernetes: requests, names, labels, JSON, and
consistent lists.

A request that was answered has the outcome that the answer states. A request without an answer
(timeout, reset, 5xx) raises `Unanswered`: it may have happened, and may still happen later. Names
carry the cluster's name and the first 12 hex digits of its id, so that a cluster deleted and
recreated under the same name never meets the old one's log. Objects have no owner, because they
describe data on volumes that outlive the LogCluster: they must survive a mistaken deletion of the
LogCluster. Called by `ring` and `kube_snapshots`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Protocol, TypeVar
from uuid import UUID

import msgspec

from plimsoll_operator.api import labels
from plimsoll_operator.kube.errors import Unavailable, status_message
from plimsoll_operator.kube.kube_api import HttpRequest, Transport
from plimsoll_operator.metalog.interface import LogCorrupt, LogUnavailable

READ_FACTOR = 5
LARGE_BYTES = 256 * 1024
UNKNOWN_OUTCOMES = frozenset({408, *range(500, 600)})


class Unanswered(Exception):
    """Raised for a request without an answer. The API server may have carried it out, may do so
    later, or never will."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    status: int
    body: bytes

    @property
    def sentence(self) -> str:
        """Return the HTTP status and the API server's explanation, for a request that was not
        carried out."""
        return f"{self.status}: {status_message(self.body)}"


class Api(Protocol):
    async def request(
        self, method: str, path: str, *, params: dict[str, str] | None = None, body: bytes = b""
    ) -> Answer:
        """Send a request once and return its answer, whatever its HTTP status. Raise `Unanswered`
        if the outcome is unknown: no answer came, or one with status 408 or 5xx."""

    async def close(self) -> None: ...


class TransportApi:
    """Implements `Api` with a transport. `timeout_ms`: timeout in milliseconds of one small write;
    reads and large writes get more."""

    def __init__(self, transport: Transport, timeout_ms: int) -> None:
        self._transport = transport
        self._timeout_s = timeout_ms / 1000

    async def request(
        self, method: str, path: str, *, params: dict[str, str] | None = None, body: bytes = b""
    ) -> Answer:
        request = HttpRequest(
            method=method,
            path=path,
            params=params or {},
            body=body,
            timeout_s=self._patience_s(method, len(body)),
        )
        try:
            response = await self._transport.send(request)
        except Unavailable as error:
            raise Unanswered(error.message) from error
        answer = Answer(status=response.status, body=response.body)
        if answer.status in UNKNOWN_OUTCOMES:
            raise Unanswered(
                f"the outcome of a write to the metadata log ({method} {path}) is unknown, so the "
                f"controller reads the log again: {answer.sentence}"
            )
        return answer

    async def close(self) -> None:
        await self._transport.close()

    def _patience_s(self, method: str, size: int) -> float:
        """Return the timeout of a request in seconds: for a GET `READ_FACTOR` times that of a small
        write; for a write it grows with `size`, the number of bytes of the body."""
        return self._timeout_s * (READ_FACTOR if method == "GET" else 1 + size / LARGE_BYTES)


GROUP = "internal.plimsoll.dev"
VERSION = "v1alpha1"
BATCHES = "metadatabatches"
SNAPSHOTS = "metadatasnapshots"
PAGE_OBJECTS = 256
READ_ATTEMPTS = 20
AT_ONCE = 16
"""The most requests at a time of one work of many requests, such as making slots."""

T = TypeVar("T")
R = TypeVar("R")


class Expired(LogUnavailable):
    """Raised if the rest of a list is no longer available. Read the list again from its
    beginning."""


class Metadata(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    name: str
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}


class Item(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A MetadataBatch or MetadataSnapshot as read. `spec` is raw JSON, which the module of the kind
    decodes."""

    metadata: Metadata
    spec: msgspec.Raw


class _ListMetadata(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    resource_version: str = ""
    next_page: str = msgspec.field(default="", name="continue")


class _Page(msgspec.Struct, frozen=True, kw_only=True):
    metadata: _ListMetadata
    items: list[Item]


class _Manifest(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A MetadataBatch or MetadataSnapshot as written."""

    api_version: str
    kind: str
    metadata: Metadata
    spec: object


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The cluster to which a metadata log belongs, and the place of its objects: namespace, name
    prefix, labels and API group. Only tests use another `group`."""

    namespace: str
    cluster_name: str
    cluster_id: UUID
    group: str = GROUP

    @property
    def api_version(self) -> str:
        return f"{self.group}/{VERSION}"

    @property
    def prefix(self) -> str:
        return f"{self.cluster_name}-{self.cluster_id.hex[:12]}"

    @property
    def labels(self) -> dict[str, str]:
        return {labels.LOG_CLUSTER_ID: str(self.cluster_id), labels.CLUSTER: self.cluster_name}

    @property
    def selector(self) -> str:
        return f"{labels.LOG_CLUSTER_ID}={self.cluster_id}"

    def path(self, plural: str, name: str | None = None) -> str:
        base = f"/apis/{self.api_version}/namespaces/{self.namespace}/{plural}"
        return base if name is None else f"{base}/{name}"

    def manifest(self, kind: str, metadata: Metadata, spec: object) -> bytes:
        return _encoder.encode(
            _Manifest(api_version=self.api_version, kind=kind, metadata=metadata, spec=spec)
        )


_encoder = msgspec.json.Encoder(order="sorted")
_item_decoder = msgspec.json.Decoder(Item)
_page_decoder = msgspec.json.Decoder(_Page)


def decode(body: bytes, plural: str, name: str) -> Item:
    """Return the object in an answer of the API server. Raise `LogCorrupt`, which names the object
    asked for, if the answer holds none."""
    try:
        return _item_decoder.decode(body)
    except msgspec.MsgspecError as error:
        raise LogCorrupt(
            f"the API server's answer about {plural}/{name} of the metadata log cannot be parsed: "
            f"{error}"
        ) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectReader:
    """Sends requests that are safe to repeat, and repeats each up to `READ_ATTEMPTS` times, after a
    pause of first `backoff_ms`. After that it raises `LogUnavailable`. `bulk` bounds the requests
    of `in_parallel` over all readers that share it: the logs of one process would else open
    `AT_ONCE` connections each at its start."""

    api: Api
    place: Place
    backoff_ms: int
    bulk: asyncio.Semaphore

    async def in_parallel(
        self, items: Iterable[T], act: Callable[[T], Awaitable[R]], at_once: int = AT_ONCE
    ) -> list[R]:
        """Do the same as the function `in_parallel`, within `bulk`."""

        async def in_turn(item: T) -> R:
            async with self.bulk:
                return await act(item)

        return await in_parallel(items, in_turn, at_once)

    async def get(self, plural: str, name: str) -> Item | None:
        answer = await self.ask("GET", self.place.path(plural, name))
        if answer.status == 404:
            return None
        return decode(_expect(answer).body, plural, name)

    async def pages(self, plural: str, selector: str) -> AsyncIterator[Item]:
        """Yield all objects of a kind that match the selector, in one consistent state. Raise
        `Expired` if that state is no longer available before the end, `LogUnavailable` if the API
        server does not list them, `LogCorrupt` if the list cannot be decoded.

        No resourceVersion is requested, so the answer is never older than the request. An expired
        page token ends the read: pages of two states are never combined.
        """
        params = {"labelSelector": selector, "limit": str(PAGE_OBJECTS)}
        while True:
            answer = await self.ask("GET", self.place.path(plural), params)
            if answer.status == 410:
                raise Expired(
                    f"the API server's list of {plural} expired while the operator read it; the "
                    "operator lists them again"
                )
            try:
                page = _page_decoder.decode(_expect(answer).body)
            except msgspec.MsgspecError as error:
                raise LogCorrupt(
                    f"the operator cannot list the {plural} of the metadata log: {error}"
                ) from error
            for item in page.items:
                yield item
            if not page.metadata.next_page:
                return
            params["continue"] = page.metadata.next_page

    async def ask(
        self, method: str, path: str, params: dict[str, str] | None = None, body: bytes = b""
    ) -> Answer:
        """Return the answer to a request that is safe to repeat. Send it again if no answer comes,
        or one with status 401 or 429. Raise `LogUnavailable` after `READ_ATTEMPTS` attempts."""
        why: object = None
        for attempt in range(READ_ATTEMPTS):
            if attempt:
                await pause(self.backoff_ms, attempt)
            try:
                answer = await self.api.request(method, path, params=params, body=body)
            except Unanswered as error:
                why = error
                continue
            if answer.status not in (401, 429):
                return answer
            why = answer.sentence
        raise LogUnavailable(
            f"the metadata log cannot be reached, because the API server does not answer: {why}"
        )


def _expect(answer: Answer) -> Answer:
    if answer.status != 200:
        raise LogUnavailable(f"the API server refuses to list the metadata log: {answer.sentence}")
    return answer


async def pause(backoff_ms: int, attempt: int) -> None:
    """Sleep `backoff_ms` times 2 to the power of `attempt`, at most 20 times `backoff_ms`."""
    await asyncio.sleep(min(backoff_ms * 2 ** min(attempt, 10), 20 * backoff_ms) / 1000)


async def in_parallel(
    items: Iterable[T], act: Callable[[T], Awaitable[R]], at_once: int = AT_ONCE
) -> list[R]:
    """Return the results of `act` for all items, in their order. At most `at_once` run at a time.
    The first exception cancels the others and is raised."""
    waiting = list(items)
    results: dict[int, R] = {}
    turns = iter(enumerate(waiting))

    async def work() -> None:
        for index, item in turns:
            results[index] = await act(item)

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(min(at_once, len(waiting))):
                group.create_task(work())
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from None
    return [results[index] for index in range(len(waiting))]
