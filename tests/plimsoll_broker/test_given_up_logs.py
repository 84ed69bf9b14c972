"""Which logs a broker sets aside if its copy of the metadata was given up."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from uuid import UUID, uuid4

from plimsoll_broker.node.broker import BrokerNode
from plimsoll_core.cluster.image import apply_all
from plimsoll_core.cluster.model import ClusterImage
from plimsoll_core.cluster.records import PartitionsCreated, Record, TopicCreated
from plimsoll_core.ids import BrokerId


def a_topic(name: str, *rows: tuple[int, ...]) -> tuple[Record, ...]:
    topic_id = uuid4()
    replicas = tuple(tuple(BrokerId(one) for one in row) for row in rows)
    return (
        TopicCreated(cause="x", topic_id=topic_id, name=name, replication_factor=1, min_isr=1),
        PartitionsCreated(cause="x", topic_id=topic_id, first=0, replicas=replicas, isr=replicas),
    )


def test_logs_to_be_kept_are_not_set_aside() -> None:
    """The given up history had begun to add a replica; in the log there is only this one."""
    records = (*a_topic("t", (1, 2), (1, 2), (1,)), *a_topic("u", (1, 2)))
    image = apply_all(ClusterImage(cluster_id=UUID(int=1)), records)
    steps: list[str] = []
    aside: list[tuple[str, int]] = []

    def doubt_logs(replicated: Callable[[str, int], bool], _: int) -> None:
        steps.append("logs")
        logs = [("t", 0), ("t", 1), ("t", 2), ("u", 0), ("unknown", 0)]
        aside.extend(one for one in logs if replicated(*one))

    node = SimpleNamespace(_store=SimpleNamespace(doubt_logs=doubt_logs))
    stream = SimpleNamespace(image=image, forget=lambda: steps.append("metadata"))
    BrokerNode._forget_history(node, stream, (("t", (1,)), ("v", (0,))))  # type: ignore[arg-type]
    assert aside == [("t", 0), ("u", 0), ("unknown", 0)]
    assert steps == ["logs", "metadata"]
