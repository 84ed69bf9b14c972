"""Inputs of the manifest builders beside the LogCluster, and names derived from contents."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from plimsoll_core.release import RELEASE
from plimsoll_operator.api import labels
from plimsoll_operator.api.labels import Manifest
from plimsoll_operator.api.logcluster import LogCluster


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """A LogCluster, its id, and the chart's settings.

    `version`: the release that the brokers run, and `broker_image` its image. `controllers`:
    host:port addresses; a name stands for all its addresses. `metrics_from`: NetworkPolicy peers
    that may read metrics; empty: the labelled namespaces of scrapers. `image_pull_secrets`: names
    of Secrets in the LogCluster's namespace. `set_user`: True if pods state the user and the groups
    that they run as. `server_names`: names by which clients reach brokers, besides those of the
    cluster's Services.
    """

    cluster: LogCluster
    cluster_id: UUID
    broker_image: str
    version: str = RELEASE
    image_pull_policy: str
    image_pull_secrets: tuple[str, ...] = ()
    set_user: bool = True
    controllers: tuple[str, ...]
    operator_namespace: str = ""
    server_names: tuple[str, ...] = ()
    metrics_from: tuple[Manifest, ...] = ()
    # Texts made from this context, by the function that makes them (`once_for_a_context`).
    made: dict[Callable[[Context], str], str] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    @property
    def name(self) -> str:
        return self.cluster.metadata.name

    @property
    def namespace(self) -> str:
        return self.cluster.metadata.namespace

    def metadata(self, name: str, component: str = "broker") -> Manifest:
        """Return the metadata of a child that is deleted with its LogCluster."""
        meta = self.cluster.metadata
        return {
            "name": name,
            "namespace": meta.namespace,
            "labels": labels.labels(meta.name, self.cluster_id, component),
            "ownerReferences": labels.owner("LogCluster", meta.name, meta.uid),
        }


def once_for_a_context(make: Callable[[Context], str]) -> Callable[[Context], str]:
    """Cache the text that `make` returns in the context: every broker's manifests need it."""

    @functools.wraps(make)
    def found(context: Context) -> str:
        if make not in context.made:
            context.made[make] = make(context)
        return context.made[make]

    return found


LENGTH = 10


def digest(value: Any) -> str:
    """Return the first hex digits of a hash over canonical JSON."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:LENGTH]
