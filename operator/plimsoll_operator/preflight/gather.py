"""Reads from an API server the facts that the checks judge.

`appends` deletes the object that it writes; the next run deletes one that an interrupted run left.
Every request has a timeout, and none is retried. Called by `checklist`. This module judges nothing.
"""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Awaitable, Callable, Collection, Iterator
from typing import Any, TypeVar

import msgspec

from plimsoll_operator.api import API_VERSION, labels
from plimsoll_operator.api.cluster_topics import LabelSelector
from plimsoll_operator.kube.errors import ApiError, Conflict, NotFound, Unavailable
from plimsoll_operator.kube.kube_api import HttpRequest, KubeApi, Object, Transport, call
from plimsoll_operator.kube.resources import (
    ACCESS_REVIEWS,
    CONFIG_MAPS,
    DEPLOYMENTS,
    LOG_CLUSTERS,
    METADATA_BATCHES,
    MUTATING_WEBHOOKS,
    NAMESPACES,
    NODES,
    STORAGE_CLASSES,
    VALIDATING_WEBHOOKS,
    Kind,
)
from plimsoll_operator.preflight.facts import (
    Appends,
    Node,
    NotRead,
    OperatorPods,
    PermissionAnswer,
    StorageClass,
    Webhook,
    WebhookRule,
    Webhooks,
    Wishes,
)
from plimsoll_operator.preflight.rights import Permission, needed

F = TypeVar("F")
REVIEWS_AT_ONCE = 8
APPENDS = 100
APPENDS_SECONDS_MAX = 60.0
APPEND_SECONDS_MAX = 5.0
APPEND_NAME = "plimsoll-preflight"
APPEND_BYTES = 1_024
REFUSALS = (401, 403)
OWN_BUSINESS = ("kube-system", "kube-public", "kube-node-lease")
"""Namespaces of Kubernetes itself, which hold no LogCluster."""


def not_read(error: ApiError) -> NotRead:
    """Return the NotRead for a fact that could not be read because of `error`. Its `refused` is
    False if the API server did not answer, True for any other error."""
    message = error.message.rstrip(".")
    if error.status in REFUSALS:
        message += " (repeat with an administrator's kubeconfig)"
    return NotRead(message=message, refused=not isinstance(error, Unavailable))


def _fact(read: Callable[[Gatherer], Awaitable[F]]) -> Callable[[Gatherer], Awaitable[F | NotRead]]:
    """Decorate a method of the Gatherer so that it returns a NotRead instead of raising
    ApiError."""

    @functools.wraps(read)
    async def found(gatherer: Gatherer) -> F | NotRead:
        try:
            return await read(gatherer)
        except ApiError as error:
            return not_read(error)

    return found


class Gatherer:
    """Reads each fact when it is requested. `kube` and `transport` lead to the same API server."""

    def __init__(self, kube: KubeApi, transport: Transport, wishes: Wishes) -> None:
        self._kube = kube
        self._transport = transport
        self._wishes = wishes

    @_fact
    async def version(self) -> str:
        return str((await self._document("/version")).get("gitVersion", ""))

    @_fact
    async def storage_classes(self) -> tuple[StorageClass, ...]:
        listed = await self._kube.list(STORAGE_CLASSES)
        return tuple(_storage_class(body) for body in listed.items)

    @_fact
    async def nodes(self) -> tuple[Node, ...]:
        listed = await self._kube.list(NODES)
        return tuple(_node(body) for body in listed.items)

    @_fact
    async def priority_and_fairness(self) -> bool:
        """Return True if the API server serves flowcontrol.apiserver.k8s.io/v1, the group of
        FlowSchemas."""
        try:
            await self._document("/apis/flowcontrol.apiserver.k8s.io/v1")
        except NotFound:
            return False
        return True

    @_fact
    async def kinds(self) -> frozenset[tuple[str, str]]:
        """Return (API version, plural) of all kinds that the API server serves in the product's
        groups."""
        found: set[tuple[str, str]] = set()
        for version in (API_VERSION, METADATA_BATCHES.api_version):
            try:
                document = await self._document(f"/apis/{version}")
            except NotFound:
                continue
            found |= {(version, row["name"]) for row in document.get("resources") or ()}
        return frozenset(found)

    @_fact
    async def clusters(self) -> frozenset[tuple[str, str]]:
        """Return (namespace, name) of all LogClusters in the namespaces to be watched; none if the
        API server does not serve them yet."""
        found: set[tuple[str, str]] = set()
        for namespace in self._wishes.watched or (None,):
            try:
                listed = await self._kube.list(LOG_CLUSTERS, namespace, metadata_only=True)
            except NotFound:
                continue
            metas = (body["metadata"] for body in listed.items)
            found |= {(meta["namespace"], meta["name"]) for meta in metas}
        return frozenset(found)

    @_fact
    async def operators(self) -> tuple[OperatorPods, ...]:
        selector = f"{labels.NAME}=plimsoll,{labels.COMPONENT}=operator"
        namespace = self._wishes.namespace
        listed = await self._kube.list(DEPLOYMENTS, namespace, label_selector=selector)
        return tuple(_operator_pods(body) for body in listed.items)

    @_fact
    async def permissions(self) -> tuple[PermissionAnswer, ...]:
        """Return an answer for each permission that the operator needs: if the caller holds it, in
        each namespace to be watched, or over the whole cluster (for all namespaces, and for objects
        without a namespace)."""
        wishes = self._wishes
        questions = [("", one) for one in needed(wishes.values, cluster=True)]
        for namespace in wishes.watched or ("",):
            questions += [(namespace, one) for one in needed(wishes.values, cluster=False)]
        slots = asyncio.Semaphore(REVIEWS_AT_ONCE)

        async def ask(namespace: str, permission: Permission) -> PermissionAnswer:
            async with slots:
                allowed = await self._is_allowed(namespace, permission)
            return PermissionAnswer(permission=permission, namespace=namespace, allowed=allowed)

        asked = [asyncio.ensure_future(ask(*question)) for question in questions]
        try:
            return tuple(await asyncio.gather(*asked))
        finally:
            for one in asked:
                one.cancel()
            await asyncio.gather(*asked, return_exceptions=True)

    @_fact
    async def webhooks(self) -> Webhooks:
        """Return all admission webhooks with failurePolicy Fail, and the labels of the namespaces
        to be watched (if none are stated, of all but Kubernetes' own; {} if they cannot be
        listed)."""
        failing: list[Webhook] = []
        for kind in (VALIDATING_WEBHOOKS, MUTATING_WEBHOOKS):
            for body in (await self._kube.list(kind)).items:
                failing += _failing(kind, body)
        return Webhooks(failing=tuple(failing), namespaces=await self._namespaces())

    async def _namespaces(self) -> dict[str, dict[str, str]]:
        try:
            listed = (await self._kube.list(NAMESPACES)).items
        except ApiError:
            return {}
        wanted = self._wishes.watched
        return {
            name: (body["metadata"].get("labels") or {}) | {labels.NAMESPACE_NAME: name}
            for body in listed
            if (name := body["metadata"]["name"]) in wanted
            or (not wanted and name not in OWN_BUSINESS)
        }

    async def appends(self) -> Appends | NotRead:
        """Measure repeated writes of one small object, like those of the metadata log, and delete
        it: a MetadataBatch if that kind is served and the caller may write and delete it, else a
        ConfigMap. Return NotRead if neither can be created."""
        found = await self._appends(METADATA_BATCHES, _batch)
        if isinstance(found, NotRead) and found.refused:
            found = await self._appends(CONFIG_MAPS, _config_map)
        return found

    async def _appends(self, kind: Kind, content: Callable[[int], Object]) -> Appends | NotRead:
        if kind == METADATA_BATCHES and not await self._may_delete(kind):
            message = (
                f"you may not delete {kind.api_version.rpartition('/')[0]}/{kind.plural} in "
                f"namespace {self._wishes.namespace}; grant yourself that right to have this "
                "measured"
            )
            return NotRead(message=message, refused=True)
        writer = _Writer(self._kube, kind, self._wishes.namespace, content)
        try:
            await writer.begin()
        except NotFound as error:
            message = f"{error.reply} (create the namespace first, or choose another one)"
            return NotRead(message=message, refused=True)
        except ApiError as error:
            return not_read(error)
        try:
            stopped = await writer.repeat()
        finally:  # Ctrl-C too
            left = await writer.remove()
        return Appends(
            kind=kind.kind, milliseconds=tuple(writer.milliseconds), stopped=stopped, left=left
        )

    async def _may_delete(self, kind: Kind) -> bool:
        group = kind.api_version.rpartition("/")[0]
        wanted = Permission(group=group, resource=kind.plural, verb="delete", name=APPEND_NAME)
        try:
            return await self._is_allowed(self._wishes.namespace, wanted)
        except ApiError:
            return False

    async def _is_allowed(self, namespace: str, permission: Permission) -> bool:
        """Return True if the caller holds the permission in the namespace, by a
        SelfSubjectAccessReview. Raises ApiError."""
        review = await self._kube.create(ACCESS_REVIEWS, _review(namespace, permission))
        return (review.get("status") or {}).get("allowed") is True

    async def _document(self, path: str) -> Object:
        return (await call(self._transport, HttpRequest(method="GET", path=path)))[0]


class _Writer:
    """Writes one object repeatedly and records in `milliseconds` the duration of each answered
    write. Call `begin`, then `repeat`, and then `remove` even if `repeat` raised."""

    def __init__(
        self, kube: KubeApi, kind: Kind, namespace: str, content: Callable[[int], Object]
    ) -> None:
        self._kube = kube
        self._kind = kind
        self._namespace = namespace
        self._content = content
        # The object as the API server last returned it.
        self._stored: Object = {}
        # The duration of each answered write.
        self.milliseconds: list[float] = []

    async def begin(self) -> None:
        """Create the object; if an earlier run left one, read it instead. Raises ApiError."""
        began = time.monotonic()
        meta = {"name": APPEND_NAME, "namespace": self._namespace}
        body = self._body(0, meta)
        try:
            self._stored = await self._kube.create(self._kind, body, timeout_s=APPEND_SECONDS_MAX)
        except Conflict:
            self._stored = await self._kube.get(self._kind, self._namespace, APPEND_NAME)
            return
        self.milliseconds.append(1_000 * (time.monotonic() - began))

    async def repeat(self) -> str:
        """Write the object until `APPENDS` writes were answered, that of `begin` included. Return
        "", or the reason why it stopped earlier: an error, or `APPENDS_SECONDS_MAX` had passed."""
        end = time.monotonic() + APPENDS_SECONDS_MAX
        for number in range(len(self.milliseconds), APPENDS):
            began = time.monotonic()
            if began > end:
                return f"{APPENDS_SECONDS_MAX:.0f} s had passed"
            meta = {
                key: self._stored["metadata"][key]
                for key in ("name", "namespace", "uid", "resourceVersion")
            }
            try:
                self._stored = await self._kube.replace(
                    self._kind, self._body(number, meta), timeout_s=APPEND_SECONDS_MAX
                )
            except Conflict:
                return "another preflight is writing the same object"
            except ApiError as error:
                return error.message.rstrip(".")
            self.milliseconds.append(1_000 * (time.monotonic() - began))
        return ""

    async def remove(self) -> str:
        """Delete the object. Return "", or the reason why the object may still exist."""
        uid = self._stored["metadata"]["uid"]
        try:
            await self._kube.delete(self._kind, self._namespace, APPEND_NAME, uid=uid)
        except NotFound:
            return ""
        except ApiError as error:
            return error.message.rstrip(".")
        return ""

    def _body(self, number: int, meta: Object) -> Object:
        kind = self._kind
        return kind.manifest(meta) | (self._content(number))


def _config_map(number: int) -> Object:
    return {"data": {"write": str(number), "padding": "x" * APPEND_BYTES}}


def _batch(number: int) -> Object:
    """Return the content of a MetadataBatch without a cluster's label, so that no operator takes it
    for a part of a metadata log."""
    padding = {"padding": "x" * APPEND_BYTES}
    return {
        "spec": {"clusterId": APPEND_NAME, "slot": 0, "nonce": str(number), "records": [padding]}
    }


def _review(namespace: str, permission: Permission) -> Object:
    resource, _, subresource = permission.resource.partition("/")
    asked = {
        "group": permission.group,
        "resource": resource,
        "subresource": subresource,
        "verb": permission.verb,
        "namespace": namespace,
        "name": permission.name,
    }
    return ACCESS_REVIEWS.manifest(
        {}, spec={"resourceAttributes": {key: value for key, value in asked.items() if value}}
    )


def _storage_class(body: Object) -> StorageClass:
    meta = body["metadata"]
    default = (meta.get("annotations") or {}).get(labels.DEFAULT_CLASS)
    return StorageClass(
        name=meta["name"],
        is_default=default == "true",
        binding_mode=body.get("volumeBindingMode") or "Immediate",
        expandable=bool(body.get("allowVolumeExpansion")),
        created=meta.get("creationTimestamp") or "",
    )


def _node(body: Object) -> Node:
    spec = body.get("spec") or {}
    return Node(
        labels=body["metadata"].get("labels") or {},
        taints=tuple(spec.get("taints") or ()),
        allocatable=(body.get("status") or {}).get("allocatable") or {},
    )


def _operator_pods(body: Object) -> OperatorPods:
    return OperatorPods(
        name=body["metadata"]["name"],
        ready=int((body.get("status") or {}).get("readyReplicas") or 0),
        wanted=int(body["spec"].get("replicas", 1)),
    )


def _failing(kind: Kind, body: Object) -> Iterator[Webhook]:
    for one in body.get("webhooks") or ():
        if one.get("failurePolicy", "Fail") == "Fail":
            yield Webhook(
                configuration=f"{kind.kind} {body['metadata']['name']}",
                name=one["name"],
                rules=tuple(_rule(rule) for rule in one.get("rules") or ()),
                namespaces=_selector(one.get("namespaceSelector") or {}),
            )


def _rule(rule: Object) -> WebhookRule:
    def words(value: Collection[Any] | None) -> tuple[str, ...]:
        return tuple(str(one) for one in value or ())

    return WebhookRule(
        groups=words(rule.get("apiGroups")),
        resources=words(rule.get("resources")),
        operations=words(rule.get("operations")),
        scope=rule.get("scope") or "*",
    )


def _selector(body: Object) -> LabelSelector:
    """Return a webhook's namespaceSelector. One that cannot be decoded becomes the selector of all
    namespaces, so that no webhook is missed."""
    try:
        return msgspec.convert(body, LabelSelector)
    except msgspec.ValidationError:
        return LabelSelector()
