"""The controllers beside the API server: StatefulSets, kubelets, garbage collection.

A host calls `reconcile` on its clock, as often as it likes; nothing here waits.
"""

from __future__ import annotations

from plimsoll_operator.api_server import garbage_collection, stateful_sets
from plimsoll_operator.api_server.kubelets import Kubelets, PodRuntime
from plimsoll_operator.api_server.server import MemoryApiServer


class Workloads:
    """All controllers over one server and one runtime of pods."""

    def __init__(self, server: MemoryApiServer, runtime: PodRuntime) -> None:
        self._server = server
        self._kubelets = Kubelets(server, runtime)

    def reconcile(self) -> None:
        """Advance each controller by one step."""
        garbage_collection.collect(self._server)
        stateful_sets.reconcile(self._server)
        self._kubelets.reconcile()
