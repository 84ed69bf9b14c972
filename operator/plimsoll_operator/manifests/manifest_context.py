"""The input of the manifest builders: the LogCluster, its id and settings of the chart; and names
that are digests of contents.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

from plimsoll_core.release import RELEASE
from plimsoll_operator.api import labels
from plimsoll_operator.api.labels import Manifest
from plimsoll_operator.api.logcluster import LogCluster


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """The input of all builders of one cluster's manifests: the LogCluster, its id, and settings of
    the chart.

    `version`: the release that the brokers run, and `broker_image` its image. `controllers`:
    host:port addresses of the operator; a host name stands for all its addresses. `metrics_from`:
    NetworkPolicy peers that may read metrics; empty: the labelled namespaces of scrapers.
    `image_pull_secrets`: names of Secrets in the LogCluster's namespace. `set_user`: True if pods
    state the user and the groups that they run as. `server_names`: names by which clients reach
    brokers, besides those of the cluster's Services.
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
    # The contexts that `of_broker` returns, by the name of the pool.
    of_pools: dict[str, Context] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    @property
    def name(self) -> str:
        return self.cluster.metadata.name

    @property
    def namespace(self) -> str:
        return self.cluster.metadata.namespace

    def of_broker(self, broker_id: int) -> Context:
        """Return the context of the manifests of one broker: its LogCluster has the settings of the
        broker's pool as those of all brokers. Return the cluster's own without a pool."""
        pool = self.cluster.pool_of(broker_id)
        if pool is None:
            return self
        if pool.name not in self.of_pools:
            cluster = self.cluster.as_pool(pool)
            self.of_pools[pool.name] = replace(self, cluster=cluster)
        return self.of_pools[pool.name]

    def metadata(self, name: str, component: str = "broker") -> Manifest:
        """Return the metadata of an object that belongs to the LogCluster and is deleted with
        it."""
        meta = self.cluster.metadata
        return {
            "name": name,
            "namespace": meta.namespace,
            "labels": labels.labels(meta.name, self.cluster_id, component),
            "ownerReferences": labels.owner("LogCluster", meta.name, meta.uid),
        }


def once_for_a_context(make: Callable[[Context], str]) -> Callable[[Context], str]:
    """Decorate a function of a Context so that it runs once for each Context: the manifests of
    every broker need its result."""

    @functools.wraps(make)
    def found(context: Context) -> str:
        if make not in context.made:
            context.made[make] = make(context)
        return context.made[make]

    return found


LENGTH = 10


def digest(value: Any) -> str:
    """Return the first `LENGTH` hex digits of the SHA-256 of the value's canonical JSON."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:LENGTH]
