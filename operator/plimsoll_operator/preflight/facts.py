"""What the checks decide over: read from a Kubernetes by `gather`, stated as values by tests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from plimsoll_operator.api.cluster_topics import LabelSelector
from plimsoll_operator.preflight.rights import Permission

Result = Literal["ok", "warning", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What a check says: one line of the report."""

    check: str
    result: Result
    message: str
    """Sentences; of all but `ok`, with what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NotRead:
    """What could not be read, and why."""

    message: str
    """The API server's words, or the client's."""
    refused: bool
    """The API server answered and would not say; else it did not answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageClass:
    """As far as brokers' volumes depend on it."""

    name: str
    is_default: bool
    binding_mode: str
    expandable: bool
    created: str
    """RFC 3339: of several default ones Kubernetes takes the newest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PermissionAnswer:
    """What a SelfSubjectAccessReview said."""

    permission: Permission
    namespace: str
    """Empty: in all namespaces, or about objects without one."""
    allowed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookRule:
    """Which requests a webhook stands before; `*` as in Kubernetes."""

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
    """Of labels of namespaces."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Webhooks:
    """Those that fail requests, and the namespaces that matter."""

    failing: tuple[Webhook, ...]
    namespaces: Mapping[str, Mapping[str, str]]
    """Labels by name; none where none is readable: then every selector may select them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Appends:
    """Writes of one small object, one after the other."""

    kind: str
    milliseconds: tuple[float, ...]
    """Of each write that was answered."""
    stopped: str = ""
    """Why there are fewer than planned; empty: there are not."""
    left: str = ""
    """Why the object could not be deleted afterwards; empty: it was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorPods:
    """A Deployment of the operator."""

    name: str
    ready: int
    wanted: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """What is to be installed: the release's namespace, and the chart's values that matter."""

    namespace: str
    watched: tuple[str, ...] = ()
    """`watch.namespaces`; none: all."""
    storage_class: str = ""
    """Empty: the default one."""
    values: frozenset[str] = field(default_factory=frozenset)
    """Names of boolean values that are true."""
