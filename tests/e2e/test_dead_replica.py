"""A dead broker that is no target of anything holds up no move between the others."""

import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from dev.kubectl import RESTRICTED, Cluster, is_true, wait_for
from kafka import KafkaAdminClient
from kafka.admin import NewTopic
from tests.e2e.clients import bootstrap, cluster_names
from tests.e2e.drill import Drill
from tests.e2e.faults import paused
from tests.kafka_python import left_sockets

DEAD, LEFT = 2, 0
TOPIC = "away"
MOVED_S = 180


@pytest.fixture
def drill(operator: Cluster) -> Iterator[Drill]:
    """Five brokers, and a topic with replicas on the first three."""
    namespace = f"dead-{uuid.uuid4().hex[:6]}"
    operator.make_namespace(namespace, RESTRICTED)
    made = Drill(operator, namespace)
    made.spec["brokers"]["count"] = 5
    made.apply("LogCluster", "main", made.spec)
    wait_for(
        "logcluster/main to be Ready",
        lambda: is_true(made.get("logcluster", "main"), "Ready") or None,
        180,
    )
    create_topic(made)
    yield made
    operator.delete_namespace(namespace)


@left_sockets()
def create_topic(drill: Drill) -> None:
    """As a client does: no object says where its replicas are to be."""
    with cluster_names(drill.cluster, drill.namespace):
        servers = bootstrap(drill.cluster, drill.namespace)
        admin = KafkaAdminClient(bootstrap_servers=servers, reconnect_backoff_max_ms=1_000)
        admin.create_topics([NewTopic(TOPIC, -1, -1, {0: [0, 1, DEAD]})])
        admin.close()


def partition(drill: Drill) -> dict[str, Any]:
    (found,) = drill.partitions(TOPIC)
    return found


@pytest.mark.timeout(600)
def test_replica_on_dead_broker_blocks_no_move(drill: Drill) -> None:
    with paused(drill, DEAD):
        wait_for(
            "an ISR without the dead broker",
            lambda: sorted(partition(drill)["isr"]) == [0, 1] or None,
            120,
        )
        drill.apply("Reassignment", "b-away", {"moves": [{"topic": TOPIC, "awayFrom": [LEFT]}]})

        def moved() -> bool | None:
            status = drill.get("reassignment", "b-away").get("status") or {}
            return status.get("phase") == "Completed" or None

        wait_for("the move to be Completed", moved, MOVED_S)
        found = partition(drill)
        (added,) = {*found["replicas"]} - {1, DEAD}
        assert added in (3, 4)
        assert sorted(found["isr"]) == [1, added]
        assert found["leader"] in found["isr"]
