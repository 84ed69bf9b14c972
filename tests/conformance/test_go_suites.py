"""The suites of clients in Go, whole: what fails here fails on Kafka too, or is told why in
docs/compatibility.md (`tests/dev/test_client_table.py` compares)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from tests.conformance import go_suites
from tests.conformance.apache_kafka import ApacheKafka
from tests.conformance.conftest import Peer
from tests.conformance.go_suites import CONFLUENT_KAFKA_GO, PROXY_PORTS, SARAMA
from tests.integration.declared import log_cluster
from tests.integration.local_cluster import LocalCluster, wait_for

pytestmark = [pytest.mark.full, pytest.mark.timeout(1800)]
SUITE_S = 900
ALONE_S = 120
CLUSTER = log_cluster(
    5,
    config={
        "auto.create.topics.enable": False,
        "group.initial.rebalance.delay.ms": 0,
        "offsets.topic.num.partitions": 5,
    },
)
TRANSACTIONS = "there are no transactions yet"
DOCKER = "it stops brokers of its own Docker Compose"
NUMBERED = "it wants brokers 1 to 5; these are numbered from 0"
# Not run with the others: they would end the whole run.  On Kafka each is run alone, and fails.
SARAMA_ALONE = {
    "TestConsumerFetchFollowerFailover": DOCKER,
    "TestFuncAdminListConsumerGroupOffsets$": DOCKER,
    "TestFuncIdempotentBufferedSequence": DOCKER,
}
SARAMA_LEFT_OUT = {
    "TestFuncTxn": TRANSACTIONS,
    "Transactions": TRANSACTIONS,
    "TestFuncDescribeProducers": TRANSACTIONS,
    "TestFuncInitProducerId3": TRANSACTIONS,
    "TestReadOnlyAndAllCommittedMessages": TRANSACTIONS,
}
# These fail on Apache Kafka, too: the run beside it asserts just that.
FAIL_ON_BOTH = {
    "TestFuncAdminDescribeLogDirs": NUMBERED,
    "TestFuncConnectionFailure": NUMBERED,
    "TestIntegration/TestAdminACLs": "it wants an authorizer",
}
# These fail here only; each stands in docs/compatibility.md.
FAIL_HERE = {
    "TestFuncAdminIncrementalAlterConfigs": "configs of brokers are the LogCluster's",
    "TestFuncAdminUpdateFeatures": "UpdateFeatures is not served",
}


@pytest.fixture
def sarama_cluster(peer_name: str, tmp_path: Path) -> Iterator[str]:
    """Five brokers that clients reach by way of toxiproxy only; where to steer that."""
    if peer_name == "kafka":
        # As the suite's own environment differs from Kafka's defaults.
        configs = {"default.replication.factor": "2", "group.initial.rebalance.delay.ms": "0"}
        kafka = ApacheKafka(
            tmp_path / "kafka", brokers=5, configs=configs, advertised_ports=PROXY_PORTS
        )
        with kafka, go_suites.toxiproxy(kafka.bootstrap.split(","), tmp_path / "proxy.log") as url:
            yield url
        return
    file = tmp_path / "cluster.yaml"
    file.write_text(CLUSTER)
    with LocalCluster(tmp_path / "data", brokers=None, files=[file]) as cluster:
        for broker, port in enumerate(PROXY_PORTS):
            path = cluster.directory / f"broker-{broker}.json"
            config = json.loads(path.read_text())
            config["advertised"]["port"] = port
            path.write_text(json.dumps(config))
            cluster.wait_restarted(broker, cluster.kill_broker(broker))
        upstream = [":".join(map(str, cluster.address(broker))) for broker in range(5)]
        with go_suites.toxiproxy(upstream, tmp_path / "proxy.log") as url:

            def advertised() -> list[int]:
                try:
                    brokers = cluster.admin().list_topics(timeout=5).brokers.values()
                except KafkaException:  # a broker has only just begun again
                    return []
                return sorted(broker.port for broker in brokers)

            wait_for("proxies are advertised", lambda: advertised() == [*PROXY_PORTS])
            yield url


def assert_as_known(peer: str, suite: str, outcomes: dict[str, str]) -> None:
    """What fails on Kafka is what was seen to; here, that and what has a reason."""
    failed = {name for name, outcome in outcomes.items() if outcome == "FAIL"}
    if peer == "kafka":
        assert failed == FAIL_ON_BOTH.keys() & outcomes.keys(), suite
    else:
        assert sorted(failed - FAIL_ON_BOTH.keys() - FAIL_HERE.keys()) == [], suite


@pytest.mark.client("sarama", "own suite")
def test_functional_tests_of_sarama_pass_through_toxiproxy(
    peer_name: str, sarama_cluster: str, tmp_path: Path
) -> None:
    left_out = [*SARAMA_ALONE, *SARAMA_LEFT_OUT]
    outcomes = go_suites.run(
        SARAMA,
        tmp_path / "sarama.log",
        SUITE_S,
        *("-test.skip", "|".join(left_out)),
        TOXIPROXY_ADDR=sarama_cluster,
        KAFKA_VERSION="4.1.0",
    )
    assert_as_known(peer_name, "sarama", outcomes)
    assert list(outcomes.values()).count("PASS") >= 100
    if peer_name == "kafka":
        for number, name in enumerate(SARAMA_ALONE):
            alone = tmp_path / f"alone-{number}"
            alone.mkdir()
            environment = {"TOXIPROXY_ADDR": sarama_cluster, "KAFKA_VERSION": "4.1.0"}
            log, words = alone / "sarama.log", ("-test.run", name)
            outcomes = go_suites.run(SARAMA, log, ALONE_S, *words, **environment)
            assert "FAIL" in outcomes.values(), f"{name} passes on Kafka"


@pytest.mark.client("confluent-kafka-go", "own suite")
def test_integration_tests_of_confluent_kafka_go_pass(peer: Peer, tmp_path: Path) -> None:
    words = ("-test.run", "TestIntegration")
    log = tmp_path / "confluent.log"
    outcomes = go_suites.run(CONFLUENT_KAFKA_GO, log, SUITE_S, *words, BROKERS=peer.bootstrap)
    del outcomes["TestIntegration"]  # it fails where one of them does
    assert_as_known(peer.name, "confluent-kafka-go", outcomes)
    assert list(outcomes.values()).count("PASS") >= 34
