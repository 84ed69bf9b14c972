"""One local cluster for every client script; clients are told nothing of whose it is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from tests.conformance import results
from tests.conformance.apache_kafka import ApacheKafka
from tests.conformance.kafka_jars import KafkaJars, kafka_jars
from tests.integration.declared import log_cluster
from tests.integration.local_cluster import LocalCluster
from tests.kafka_python import LEFT_SOCKETS

HERE = f"{Path(__file__).parent}/"
PARTITIONS = 3
CLUSTER = log_cluster(
    config={"offsets.topic.num.partitions": 5, "group.initial.rebalance.delay.ms": 300}
)
# The same for Kafka, as far as its defaults differ.
BESIDE = {
    "auto.create.topics.enable": "true",
    "group.initial.rebalance.delay.ms": "300",
    "offsets.topic.num.partitions": "5",
}


@dataclass(frozen=True, kw_only=True)
class Peer:
    """Whom an application stands on: Plimsoll, or Apache Kafka for comparison."""

    name: str
    bootstrap: str
    replicas: int = 3
    # Plimsoll's, for tests that look at it when something is missing.
    local: LocalCluster | None = None
    # What clients need beside the addresses to get in, in librdkafka's words and in Java's.
    login: Mapping[str, str] = field(default_factory=dict)
    java_login: Mapping[str, str] = field(default_factory=dict)

    @property
    def librdkafka(self) -> dict[str, str]:
        return {"bootstrap.servers": self.bootstrap, **self.login}

    @property
    def java(self) -> dict[str, str]:
        return {"bootstrap.servers": self.bootstrap, **self.java_login}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--full", action="store_true", help="what takes minutes, too")
    parser.addoption("--beside-kafka", action="store_true", help="and against Apache Kafka")
    parser.addoption("--confluent-kafka-python", help="a checkout of its repository, with tests")
    parser.addoption("--record", help="the file into which outcomes of clients are written")


def pytest_configure(config: pytest.Config) -> None:
    if path := config.getoption("--record", default=None):
        config.pluginmanager.register(results.Recorder(Path(path)))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    beside = metafunc.config.getoption("--beside-kafka", default=False)
    peers = ["plimsoll", "kafka"] if beside else ["plimsoll"]
    if "peer" in metafunc.fixturenames:
        metafunc.parametrize("peer", peers, indirect=True, scope="session")
    elif "peer_name" in metafunc.fixturenames:  # the test's cluster is its own
        metafunc.parametrize("peer_name", peers)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    ours = [item for item in items if str(item.path).startswith(HERE)]
    for item in ours:
        item.add_marker(pytest.mark.conformance)
        item.add_marker(LEFT_SOCKETS)
        for mark in item.iter_markers("client"):
            results.cell_of(item, mark)  # fails in every run, not in those alone that record
    full = config.getoption("--full", default=False)
    checkout = config.getoption("--confluent-kafka-python", default=None)
    left_out = [
        item
        for item in ours
        if (item.get_closest_marker("full") and not full)
        or (item.path.name == "test_python_suite.py" and not checkout)
    ]
    if left_out:
        items[:] = [item for item in items if item not in left_out]
        config.hook.pytest_deselected(items=left_out)


@pytest.fixture(scope="session")
def peer(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Peer]:
    """A cluster that all applications share, each with its own topics: three brokers of Plimsoll's,
    or one of Kafka's, which is only there to be compared with."""
    directory = tmp_path_factory.mktemp(request.param)
    if request.param == "kafka":
        with ApacheKafka(directory, configs=BESIDE) as kafka:
            yield Peer(name=request.param, bootstrap=kafka.bootstrap, replicas=1)
        return
    file = directory / "cluster.yaml"
    file.write_text(CLUSTER)
    with LocalCluster(directory / "data", brokers=None, files=[file]) as local:
        yield Peer(name=request.param, bootstrap=local.bootstrap, local=local)


@pytest.fixture(scope="session")
def apache_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peer]:
    """The other side of what copies between clusters; each test has its own topics there."""
    with ApacheKafka(tmp_path_factory.mktemp("other")) as kafka:
        yield Peer(name="kafka", bootstrap=kafka.bootstrap, replicas=1)


@pytest.fixture
def peer_topic(peer: Peer, request: pytest.FixtureRequest) -> str:
    """A topic of the test's own with three replicas, whoever's."""
    name = topic_name(request)
    admin = AdminClient({"bootstrap.servers": peer.bootstrap})
    for future in admin.create_topics([NewTopic(name, PARTITIONS, peer.replicas)]).values():
        future.result(30)
    return name


def topic_name(request: pytest.FixtureRequest) -> str:
    return "".join(c if c.isalnum() else "-" for c in request.node.name)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster(tmp_path_factory.mktemp("conformance") / "data", brokers=3) as local:
        yield local


@pytest.fixture
def topic(cluster: LocalCluster, request: pytest.FixtureRequest) -> str:
    """A topic of the test's own, with three replicas, to which no other test writes."""
    name = topic_name(request)
    cluster.create_topic(name, PARTITIONS, {"min.insync.replicas": "2"})
    cluster.wait_isr(name, 3)
    return name


@pytest.fixture(scope="session", params=["4.1.0", pytest.param("3.9.1", marks=pytest.mark.long)])
def jars(request: pytest.FixtureRequest) -> KafkaJars:
    """Kafka's own tools, the newest and the line that Spark ships."""
    return kafka_jars(request.param)
