"""The facts that the checks of `plimsoll preflight` judge. `gather` reads them from an API server;
tests state them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from plimsoll_operator.api.cluster_topics import LabelSelector
from plimsoll_operator.api.logcluster import LogCluster
from plimsoll_operator.api.topic import Topic
from plimsoll_operator.preflight.rights import Permission

Result = Literal["ok", "warning", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The result of one check: one paragraph of the report."""

    check: str
    result: Result
    message: str
    """Sentences for the user. Unless the result is `ok`, they say what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NotRead:
    """Stands for a fact that could not be read."""

    message: str
    """The reason, as the API server or the client states it."""
    refused: bool
    """True if the API server refused to show the fact; False if it did not answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageClass:
    """The fields of a StorageClass that brokers' volumes depend on."""

    name: str
    is_default: bool
    binding_mode: str
    expandable: bool
    created: str
    """Creation time, RFC 3339. Of several default classes Kubernetes takes the newest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """The fields of a Node by which pods are placed. A cordoned one has a taint that says so."""

    labels: Mapping[str, str]
    taints: tuple[dict[str, Any], ...] = ()
    allocatable: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class PermissionAnswer:
    """The API server's answer to the question if the caller holds a permission."""

    permission: Permission
    namespace: str
    """The namespace for which the permission was asked; empty: all namespaces, or objects without a
    namespace."""
    allowed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookRule:
    """One rule of a webhook: the requests that it intercepts. `*` has the same meaning as in
    Kubernetes."""

    groups: tuple[str, ...]
    resources: tuple[str, ...]
    operations: tuple[str, ...]
    scope: str = "*"


@dataclass(frozen=True, slots=True, kw_only=True)
class Webhook:
    """An admission webhook with failurePolicy Fail: while it is down, the requests that it
    intercepts fail."""

    configuration: str
    """Kind and name of the object that declares the webhook: `ValidatingWebhookConfiguration
    NAME`."""
    name: str
    rules: tuple[WebhookRule, ...]
    namespaces: LabelSelector
    """Selects, by their labels, the namespaces in which the webhook intercepts requests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Webhooks:
    """All webhooks with failurePolicy Fail, and the namespaces in which the product will write."""

    failing: tuple[Webhook, ...]
    namespaces: Mapping[str, Mapping[str, str]]
    """Labels of the namespaces in which the product will write, by namespace. Empty if they could
    not be read; every selector then counts as matching."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Appends:
    """Durations of repeated writes of one small object, one after the other, as a measure of etcd's
    latency. `kind`: that of the object."""

    kind: str
    milliseconds: tuple[float, ...]
    """Duration in milliseconds of each write that was answered."""
    stopped: str = ""
    """The reason why fewer writes than planned were made; empty: all were made."""
    left: str = ""
    """The reason why the object still exists; empty: it was deleted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorPods:
    """One Deployment of the operator, and how many of its pods are Ready."""

    name: str
    ready: int
    wanted: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """The planned installation. `namespace`: that of the chart's release."""

    namespace: str
    watched: tuple[str, ...] = ()
    """The chart's `watch.namespaces`; empty: all namespaces."""
    storage_class: str = ""
    """The StorageClass of brokers' volumes; empty: the default one."""
    cluster: LogCluster | None = None
    """A LogCluster to be applied, None if none is given."""
    topics: tuple[Topic, ...] = ()
    """Topics to be applied."""
    values: frozenset[str] = field(default_factory=frozenset)
    """Names of the chart's boolean values that are true."""
