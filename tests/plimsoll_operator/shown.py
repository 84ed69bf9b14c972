"""What a process shows to its metrics, stated by tests."""

from types import SimpleNamespace
from typing import Any
from uuid import UUID

from msgspec.structs import replace
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families
from tests.plimsoll_operator.builders import an_image

from plimsoll_core.cluster.model import ClusterImage, Partition, PartitionKey
from plimsoll_core.controller.kernel.settings import Settings
from plimsoll_core.controller.kernel.volatile_state import VolatileState
from plimsoll_core.ids import BrokerId, LeaderEpoch, PartitionEpoch
from plimsoll_operator.controller.controller_stats import ControllerStats
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
        self.errors: list[Exception] = []
        self.kept: list[Any] = []
        self.backed_up: list[Any] = []
        self.ends: list[Any] = []
        self.unclean: list[Any] = []

    def known(self) -> Any:
        return self.seen

    def controllers(self) -> list[Any]:
        return self.led

    def blocked(self) -> list[Any]:
        return self.waits

    def peers_refused(self) -> dict[str, int]:
        return {}

    def reconciling(self) -> list[Any]:
        return self.passes

    def failures(self) -> dict[str, int]:
        return self.bugs

    def met(self, error: Exception) -> None:
        self.bugs["Metrics"] = self.bugs.get("Metrics", 0) + 1
        self.errors.append(error)

    def histories(self) -> list[Any]:
        return self.kept

    def backups(self) -> list[Any]:
        return self.backed_up

    def unclean_recoveries(self) -> list[Any]:
        return self.unclean

    def certificates(self) -> list[Any]:
        return self.ends


def metrics_of(shows: Shows) -> Metrics:
    metrics = Metrics()
    metrics.watch(shows)
    return metrics


def families_of(metrics: Metrics) -> list[Metric]:
    """All that it shows."""
    metrics.render()
    written = text_string_to_metric_families(metrics.isr_sizes().decode())
    return [*metrics.registry.collect(), *written]


def sample(metrics: Metrics, metric: str, /, **labels: str) -> float | None:
    """One value, as Prometheus would read it; None: there is no such series."""
    metrics.render()
    return metrics.registry.get_sample_value(metric, labels)


def leading(image: ClusterImage, **contacts: Any) -> Any:
    """A controller that is active, as far as metrics look into it."""
    soft = VolatileState()
    soft.contacts.update({BrokerId(int(name[1:])): c for name, c in contacts.items()})
    return SimpleNamespace(
        image=image,
        active=True,
        soft=soft,
        settings=Settings(),
        stats=ControllerStats(),
        now_ms=10_000,
        waiting=3,
        clients_waiting=0,
        snapshotter=SimpleNamespace(usage=None),
    )


def many(partitions: int) -> ClusterImage:
    topic_id, isr = UUID(int=1), (BrokerId(0), BrokerId(1), BrokerId(2))
    rows = {
        PartitionKey(topic_id, index): Partition(
            topic_id=topic_id,
            index=index,
            replicas=isr,
            isr=isr,
            leader=BrokerId(0),
            leader_epoch=LeaderEpoch(0),
            partition_epoch=PartitionEpoch(0),
            min_isr=2,
        )
        for index in range(partitions)
    }
    image = an_image()
    return replace(image, partitions=image.partitions.update(rows))
