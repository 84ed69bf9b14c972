"""One run of `kubectl plimsoll`: the kubeconfig's API server, and the chosen LogCluster.

The API server is a real one, or that of `plimsoll local`, which serves the operator's view itself.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from plimsoll_operator.api.cluster_ids import cluster_id, from_kafka_id
from plimsoll_operator.api.load import Unreadable, from_object
from plimsoll_operator.api.logcluster import LogCluster
from plimsoll_operator.kube.errors import ApiError
from plimsoll_operator.kube.kube_api import KubeApi, Object, Transport
from plimsoll_operator.kube.official_transport import (
    OfficialTransport,
    from_kubeconfig,
    namespace_of,
)
from plimsoll_operator.kube.resources import LOG_CLUSTERS, TOPICS, Kind
from plimsoll_operator.kubectl_plugin.shown import Problem, told
from plimsoll_operator.kubectl_plugin.view_client import ViewClient, view_of


@dataclass(frozen=True, slots=True, kw_only=True)
class CommonOptions:
    """The options that every verb has."""

    namespace: str | None
    cluster: str | None
    context: str | None
    kubeconfig: str | None
    operator_namespace: str
    output: str | None
    watch: bool


class PluginSession:
    """Context of one run of a verb: an API server (`kube` and `transport` lead to the same one),
    the operator's view, and the chosen LogCluster. The caller closes it."""

    def __init__(self, transport: Transport, view: ViewClient, namespace: str) -> None:
        self.transport = transport
        self.kube = KubeApi(transport)
        self.view = view
        self.namespace = namespace
        self._wanted: str | None = None
        self._found: LogCluster | None = None
        self._body: Object = {}

    async def close(self) -> None:
        await self.transport.close()

    async def choose(self, name: str | None) -> None:
        """Choose the LogCluster `name` in the session's namespace (None: the only one there) and
        read it. Raises `Problem` if there is none of that name, if there are several and `name` is
        None, or if it cannot be read."""
        self._wanted = name
        await self.refresh()

    async def refresh(self) -> None:
        bodies = await self.objects(LOG_CLUSTERS)
        names = [body["metadata"]["name"] for body in bodies]
        if self._wanted is None and len(bodies) != 1:
            raise Problem(_not_one(names, self.namespace))
        for body in bodies:
            if self._wanted in (None, body["metadata"]["name"]):
                self._body = body
                self._found = _typed(body)
                return
        raise Problem(f"There is no LogCluster {self._wanted} in namespace {self.namespace}.")

    @property
    def cluster(self) -> LogCluster:
        assert self._found is not None, "chosen before a verb runs"
        return self._found

    @property
    def status(self) -> Object:
        return dict(self._body.get("status") or {})

    @property
    def cluster_id(self) -> str:
        """Return the cluster's id. A LogCluster that continues another cluster states it in its
        status alone."""
        shown = from_kafka_id(str(self.status.get("clusterId") or ""))
        return str(shown or cluster_id(self.cluster))

    async def objects(self, kind: Kind) -> list[Object]:
        """Return the objects of a kind in the session's namespace, as the API server sent them.
        Raises `Problem` if they cannot be listed."""
        try:
            return list((await self.kube.list(kind, self.namespace)).items)
        except ApiError as error:
            raise Problem(
                f"Cannot read {kind.plural} in {self.namespace}: {told(error)}"
            ) from error

    async def topic_objects(self) -> list[Object]:
        """Return the Topics in the session's namespace with a clusterRef to the chosen LogCluster.
        Raises `Problem` if they cannot be listed."""
        name = self.cluster.metadata.name
        found = []
        for body in await self.objects(TOPICS):
            reference = body["spec"].get("clusterRef") or {}
            here = reference.get("namespace") in (None, self.namespace)
            if here and reference.get("name") == name:
                found.append(body)
        return found

    async def see(self, path: str = "", **params: str) -> Any:
        """Return the JSON at `path` below the chosen cluster in the operator's view. Raises
        `ViewUnavailable` if no operator that leads the cluster answers, `Problem` if it refuses the
        request."""
        namespace, name = self.cluster.key
        return await self.view.get(f"/v1/clusters/{namespace}/{name}{path}", params)


def _not_one(names: list[str], namespace: str) -> str:
    if not names:
        return f"There is no LogCluster in namespace {namespace}; choose another namespace with -n."
    return (
        f"Namespace {namespace} has {len(names)} LogClusters; choose one with -c: "
        f"{', '.join(names)}."
    )


def _typed(body: Object) -> LogCluster:
    try:
        return from_object(body, LogCluster)
    except Unreadable as error:
        name = body["metadata"]["name"]
        raise Problem(f"This release cannot read LogCluster {name}: {error}") from error


async def connect(wishes: CommonOptions) -> PluginSession:
    """Open a session with the API server, and choose the LogCluster, that the options name. Raises
    `Problem` if that fails, `NoCluster` if there is no usable kubeconfig."""
    paths = wishes.kubeconfig or os.environ.get("KUBECONFIG") or str(Path.home() / ".kube/config")
    access = await from_kubeconfig(paths, wishes.context)
    namespace = wishes.namespace or namespace_of(paths, wishes.context)
    transport = OfficialTransport(access)
    try:
        view = await view_of(transport, wishes.operator_namespace)
    except Problem:
        await transport.close()
        raise
    session = PluginSession(transport, view, namespace)
    try:
        await session.choose(wishes.cluster)
    except Problem:
        await session.close()
        raise
    return session
