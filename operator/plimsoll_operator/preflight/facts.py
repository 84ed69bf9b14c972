"""The facts that the checks judge: `gather` reads them from a Kubernetes, tests state them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from plimsoll_operator.api.cluster_topics import LabelSelector
from plimsoll_operator.preflight.rights import Permission

Result = Literal["ok", "warning", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The result of a check: one line of the report."""

    check: str
    result: Result
    message: str
    """Sentences; of all but `ok`, with what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NotRead:
    """A fact that could not be read, and the reason."""

    message: str
    """The API server's words, or the client's."""
    refused: bool
    """The API server answered and would not say; else it did not answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageClass:
    """The fields of a StorageClass that brokers' volumes depend on."""

    name: str
    is_default: bool
    binding_mode: str
    expandable: bool
    created: str
    """RFC 3339: of several default ones Kubernetes takes the newest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PermissionAnswer:
    permission: Permission
    namespace: str
    """Empty: in all namespaces, or about objects without one."""
    allowed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookRule:
    """The requests that a webhook intercepts; `*` as in Kubernetes."""

    groups: tuple[str, ...]
    resources: tuple[str, ...]
    operations: tuple[str, ...]
    scope: str = "*"


@dataclass(frozen=True, slots=True, kw_only=True)
class Webhook:
    """A webhook with failurePolicy Fail."""

    configuration: str
    """`ValidatingWebhookConfiguration NAME`."""
    name: str
    rules: tuple[WebhookRule, ...]
    namespaces: LabelSelector
    """Selects namespaces by their labels."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Webhooks:
    """The webhooks that can fail requests, and the relevant namespaces."""

    failing: tuple[Webhook, ...]
    namespaces: Mapping[str, Mapping[str, str]]
    """Labels by name; empty if unreadable: then every selector may match."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Appends:
    """Writes of one small object, one after the other."""

    kind: str
    milliseconds: tuple[float, ...]
    """The duration of each answered write."""
    stopped: str = ""
    """The reason for fewer writes than planned; empty: all were done."""
    left: str = ""
    """The reason why the object could not be deleted afterwards; empty: it was deleted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorPods:
    name: str
    ready: int
    wanted: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """The planned installation: the release's namespace, and the chart's relevant values."""

    namespace: str
    watched: tuple[str, ...] = ()
    """The chart's `watch.namespaces`; empty: all."""
    storage_class: str = ""
    """The StorageClass; empty: the default one."""
    values: frozenset[str] = field(default_factory=frozenset)
    """Names of boolean values that are true."""
