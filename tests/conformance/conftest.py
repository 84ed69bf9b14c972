"""One local cluster for every client script; clients are told nothing of whose it is."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.conformance.kafka_jars import KafkaJars, kafka_jars
from tests.integration.local_cluster import LocalCluster

HERE = Path(__file__).parent
PARTITIONS = 3


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.conformance)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster(tmp_path_factory.mktemp("conformance") / "data", brokers=3) as local:
        yield local


@pytest.fixture
def topic(cluster: LocalCluster, request: pytest.FixtureRequest) -> str:
    """A topic of the test's own, with three replicas, to which no other test writes."""
    name = "".join(c if c.isalnum() else "-" for c in request.node.name)
    cluster.create_topic(name, PARTITIONS, {"min.insync.replicas": "2"})
    cluster.wait_isr(name, 3)
    return name


@pytest.fixture(scope="session", params=["4.1.0", "3.9.1"])
def jars(request: pytest.FixtureRequest) -> KafkaJars:
    """Kafka's own tools, the newest and the line that Spark ships."""
    return kafka_jars(request.param)
