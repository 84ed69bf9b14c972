"""What a process shows to its metrics, stated by tests."""

from typing import Any

from plimsoll_operator.kube.seen_objects import Objects
from plimsoll_operator.status.operator_metrics import Metrics


class Shows:
    """`status.operator_metrics.Shown`: leads nothing and has seen nothing, unless told so."""

    def __init__(self, **brokers: set[int]) -> None:
        """`brokers`: of each cluster of the namespace kafka that was seen."""
        self.objects = Objects()
        self.seen = {("kafka", name): frozenset(ids) for name, ids in brokers.items()}
        self.led: list[Any] = []
        self.waits: list[Any] = []
        self.passes: list[Any] = []
        self.bugs: dict[str, int] = {}

    def known(self) -> Any:
        return self.seen

    def controllers(self) -> list[Any]:
        return self.led

    def blocked(self) -> list[Any]:
        return self.waits

    def reconciling(self) -> list[Any]:
        return self.passes

    def failures(self) -> dict[str, int]:
        return self.bugs


def metrics_of(shows: Shows) -> Metrics:
    metrics = Metrics()
    metrics.watch(shows)
    return metrics


def sample(metrics: Metrics, metric: str, /, **labels: str) -> float | None:
    """One value, as Prometheus would read it; None: there is no such series."""
    metrics.render()
    return metrics.registry.get_sample_value(metric, labels)
