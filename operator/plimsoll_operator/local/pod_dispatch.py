"""Dispatches a pod to its runtime: that of Spark drivers, or that of brokers. Each runtime verifies
that the pod is its own.

Called by `cluster`, and as the node's kubelet by `machine`.
"""

from __future__ import annotations

from collections.abc import Callable

from plimsoll_operator.api import labels
from plimsoll_operator.api_server.kubelets import RuntimeState
from plimsoll_operator.kube.kube_api import Object
from plimsoll_operator.local.broker_pods import BrokerPods
from plimsoll_operator.local.driver_pods import DriverPods


class LocalPods:
    """`api_server.kubelets.PodRuntime` for both kinds of pods."""

    def __init__(self, brokers: BrokerPods, drivers: DriverPods) -> None:
        self._brokers = brokers
        self._drivers = drivers

    def tell(self, changed: Callable[[], None], failed: Callable[[BaseException], None]) -> None:
        """Register callbacks. `changed`: a pod's state has changed; `failed`: a bug was found."""
        for runtime in (self._brokers, self._drivers):
            runtime.on_change, runtime.on_failure = changed, failed

    async def stop_all(self) -> None:
        """Stop drivers first: they are the brokers' clients."""
        await self._drivers.stop_all()
        await self._brokers.stop_all()

    def place(self, pod: Object) -> str | None:
        return self._of(pod).place(pod)

    def start(self, pod: Object) -> None:
        self._of(pod).start(pod)

    def stop(self, pod: Object, grace_seconds: int) -> None:
        self._of(pod).stop(pod, grace_seconds)

    def state(self, pod: Object) -> RuntimeState | None:
        return self._of(pod).state(pod)

    def has_ended(self, pod: Object) -> bool:
        return self._of(pod).has_ended(pod)

    def _of(self, pod: Object) -> BrokerPods | DriverPods:
        wanted = labels.VERIFICATION in (pod["metadata"].get("labels") or {})
        return self._drivers if wanted else self._brokers
