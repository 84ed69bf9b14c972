"""Inputs of the manifest builders besides the LogCluster itself."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from plimsoll_core.release import RELEASE
from plimsoll_operator.api import labels
from plimsoll_operator.api.labels import Manifest
from plimsoll_operator.api.logcluster import LogCluster


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """A LogCluster, its id, and what the chart says.

    `version`: the release that the brokers run, and `broker_image` its image.  `controllers` are
    host:port addresses; a name stands for all its addresses.  `metrics_from`: NetworkPolicy peers
    that may read metrics, none: all.
    """

    cluster: LogCluster
    cluster_id: UUID
    broker_image: str
    version: str = RELEASE
    image_pull_policy: str
    controllers: tuple[str, ...]
    operator_namespace: str = ""
    metrics_from: tuple[Manifest, ...] = ()

    @property
    def name(self) -> str:
        return self.cluster.metadata.name

    @property
    def namespace(self) -> str:
        return self.cluster.metadata.namespace

    def metadata(self, name: str, component: str = "broker") -> Manifest:
        """The metadata of a child that goes with its LogCluster."""
        meta = self.cluster.metadata
        return {
            "name": name,
            "namespace": meta.namespace,
            "labels": labels.labels(meta.name, self.cluster_id, component),
            "ownerReferences": labels.owner("LogCluster", meta.name, meta.uid),
        }
