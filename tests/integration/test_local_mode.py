"""`plimsoll local`: starts, serves unchanged clients, stops, and goes on where it was."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import kafka
import pytest
from tests.integration import forked
from tests.integration.local_cluster import (
    DidNotStart,
    LocalCluster,
    a_producer,
    assert_nothing_lost,
    consume_all,
    produce,
    wait_for,
)
from tests.kafka_python import left_sockets

ORDERS = """\
apiVersion: plimsoll.dev/v1alpha1
kind: LogCluster
metadata: {name: main, namespace: kafka}
spec:
  brokers: {count: 3}
  storage: {size: 1Gi}
---
apiVersion: plimsoll.dev/v1alpha1
kind: Topic
metadata: {name: orders, namespace: kafka}
spec:
  clusterRef: {name: main}
  partitions: 15
  replicationFactor: 3
  minInSyncReplicas: 2
  placement: {strategy: Blocked}
"""

COMPACTED = """\
---
apiVersion: plimsoll.dev/v1alpha1
kind: Topic
metadata: {name: latest, namespace: kafka}
spec: {clusterRef: {name: main}, partitions: 1, config: {cleanup.policy: compact}}
"""

# The blocked table of the protocol for three brokers.
BLOCKED_OF_15 = {
    0: (0, 1, 2), 1: (0, 2, 1), 2: (0, 1, 2), 3: (0, 2, 1), 4: (0, 1, 2),
    5: (1, 2, 0), 6: (1, 0, 2), 7: (1, 2, 0), 8: (1, 0, 2), 9: (1, 2, 0),
    10: (2, 0, 1), 11: (2, 1, 0), 12: (2, 0, 1), 13: (2, 1, 0), 14: (2, 0, 1),
}  # fmt: skip


def values(count: int, size: int = 100) -> list[bytes]:
    return [f"{number:08d}".encode().ljust(size, b".") for number in range(count)]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """One cluster for all tests that stop no process; each has topics of its own."""
    with LocalCluster(tmp_path_factory.mktemp("shared") / "cluster", forked=False) as running:
        yield running


def test_ready_line_says_where_everything_is(shared: LocalCluster) -> None:
    assert set(shared.ready) == {"bootstrap", "controller", "api", "metrics", "pids"}
    assert set(shared.ready["pids"]) == {"0", "1", "2", "controller"}
    assert len(shared.bootstrap.split(",")) == 3
    for who, url in shared.ready["metrics"].items():
        with urllib.request.urlopen(url, timeout=5) as reply:
            name = "operator_up" if who == "controller" else "broker_partitions"
            assert f"plimsoll_{name}" in reply.read().decode()
    (led,) = shared.api.ask("GET", "/v1/clusters")[1]["clusters"]
    assert (led["cluster"], led["active"]) == ("local", True)
    for pid in shared.ready["pids"].values():
        os.kill(pid, 0)
    assert all(shared.http(broker, "/readyz")[0] == 200 for broker in range(3))
    assert all(shared.http(broker, "/healthz")[0] == 200 for broker in range(3))


def test_api_server_answers_the_directorys_owner_only(shared: LocalCluster) -> None:
    """Not another user of the machine, and no web page: neither reads nor writes."""
    kubeconfig = shared.directory / "kubeconfig"
    assert kubeconfig.stat().st_mode & 0o777 == 0o600
    api, code = shared.api, {"metadata": {"name": "code"}, "data": {"x.py": "1"}}
    maps = "/api/v1/namespaces/default/configmaps"
    page = {"Content-Type": "text/plain", "Origin": "https://evil.example"}
    foreign = {"Host": "evil.example", "Authorization": f"Bearer {api.token}"}
    for headers, status in (({}, 401), (page, 403), (foreign, 403)):
        for path, data in ((maps, json.dumps(code).encode()), ("/v1/clusters", None)):
            request = urllib.request.Request(api.url + path, data, headers)
            with pytest.raises(urllib.error.HTTPError) as refused:
                urllib.request.urlopen(request, timeout=10, context=api.trust)
            assert refused.value.code == status
            refused.value.close()
    listed = api.ask("GET", maps)[1]["items"]
    assert "code" not in {one["metadata"]["name"] for one in listed}
    # Who speaks no TLS hears nothing at all.
    with pytest.raises((urllib.error.URLError, ConnectionError)):
        urllib.request.urlopen(api.url.replace("https", "http") + "/api", timeout=10)


def test_librdkafka_writes_and_reads_a_topic_it_created(shared: LocalCluster) -> None:
    shared.create_topic("librdkafka", 6)
    acked = produce(shared.bootstrap, "librdkafka", values(5_000))
    assert not acked.errors
    assert len(acked.records) == 5_000
    assert_nothing_lost(acked, consume_all(shared.bootstrap, "librdkafka", 6))


@pytest.mark.parametrize("acks", [0, 1, "all"])
@left_sockets()
def test_kafka_python_writes_and_reads(shared: LocalCluster, acks: int | str) -> None:
    topic = f"kafka-python-{acks}"
    shared.create_topic(topic, 3)
    servers = shared.bootstrap.split(",")
    producer = kafka.KafkaProducer(
        bootstrap_servers=servers, acks=acks, enable_idempotence=acks == "all"
    )
    sent = values(300)
    for value in sent:
        producer.send(topic, value)
    producer.flush(30)
    producer.close()
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=servers, group_id=None, auto_offset_reset="earliest"
    )
    consumer.assign([kafka.TopicPartition(topic, index) for index in range(3)])
    read: list[bytes] = []

    def poll() -> bool:
        for records in consumer.poll(200).values():
            read.extend(record.value for record in records)
        return len(read) >= len(sent)

    wait_for("every record is read", poll)
    consumer.close()
    assert sorted(read) == sent


def test_yaml_creates_its_cluster_and_topic(tmp_path: Path) -> None:
    (tmp_path / "orders.yaml").write_text(ORDERS + COMPACTED)
    files = [tmp_path / "orders.yaml"]
    with LocalCluster(tmp_path / "c", brokers=None, files=files) as cluster:
        assert len(cluster.topic("latest")) == 1, "what needs the newest metadata version is there"
        placed = {index: tuple(p.replicas) for index, p in cluster.topic("orders").items()}
        assert placed == BLOCKED_OF_15
        acked = produce(cluster.bootstrap, "orders", values(1_000))
        assert len(acked.records) == 1_000
        admin = cluster.admin()
        refused = admin.delete_topics(["orders"])["orders"].exception(10)
        assert isinstance(refused, confluent_kafka.KafkaException)
        assert refused.args[0].code() == confluent_kafka.KafkaError.POLICY_VIOLATION


def test_restarted_local_cluster_keeps_records_and_addresses(
    tmp_path: Path,
) -> None:
    cluster = LocalCluster(tmp_path / "c", forked=False)
    with cluster:
        cluster.create_topic("t", 6)
        acked = produce(cluster.bootstrap, "t", values(3_000))
        before = cluster.ready
        assert cluster.stop() == 0
    for broker in range(3):
        assert (tmp_path / "c" / f"broker-{broker}" / ".kafka_cleanshutdown").exists()
    with cluster:
        assert cluster.ready["bootstrap"] == before["bootstrap"]
        assert cluster.ready["controller"] == before["controller"]
        cluster.wait_isr("t", 3)
        assert_nothing_lost(acked, consume_all(cluster.bootstrap, "t", 6))
        more = produce(cluster.bootstrap, "t", [b"more-%d" % n for n in range(100)])
        assert len(more.records) == 100


def test_stopped_local_cluster_leaves_no_process(tmp_path: Path) -> None:
    with LocalCluster(tmp_path / "c", forked=False) as cluster:
        pids = list(cluster.pids.values())
        assert cluster.stop() == 0
    for pid in pids:
        assert not Path(f"/proc/{pid}").exists()


def test_sigint_stops_it_too(tmp_path: Path) -> None:
    cluster = LocalCluster(tmp_path / "c", brokers=1, forked=False)
    cluster.start()
    os.kill(cluster.controller_pid, signal.SIGINT)
    assert cluster.stop() == 0


def test_port_option_is_the_first_brokers(tmp_path: Path) -> None:
    first = LocalCluster(tmp_path / "free", brokers=1)
    with first:
        port = first.address(0)[1]
    with LocalCluster(tmp_path / "c", brokers=1, arguments=["--port", str(port)]) as cluster:
        assert cluster.address(0)[1] == port


def test_occupied_port_ends_start_with_a_sentence(tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        arguments = ["--port", str(port := other.getsockname()[1])]
        cluster = LocalCluster(tmp_path / "c", brokers=1, arguments=arguments)
        run = subprocess.run(cluster.command, capture_output=True, timeout=60, check=False)
    assert run.returncode == 1
    assert f"Port {port} of broker 0 is unavailable" in run.stderr.decode()
    assert "Traceback" not in run.stderr.decode()


def test_second_cluster_on_directory_is_refused(shared: LocalCluster) -> None:
    second = LocalCluster(shared.directory)
    with pytest.raises(DidNotStart):
        second.start()
    shared.create_topic("still-here", 1)
    assert len(produce(shared.bootstrap, "still-here", [b"x"]).records) == 1


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("kind: [", "The file is not valid YAML"),
        (ORDERS.replace("Topic", "Topik"), "this kind is unknown"),
        (ORDERS.replace("{count: 3}", "{count: 0}"), "count"),
        (ORDERS.replace("clusterRef: {name: main}", "clusterRef: {name: other}"), "other"),
        (ORDERS.replace("replicationFactor: 3", "replicationFactor: 5"), "brokers"),
        (ORDERS + "  config: {no.such.key: 1}\n", "no.such.key"),
        (
            ORDERS + "  cleanupPolicy: compact\n",
            "spec.cleanupPolicy is unknown; known fields are clusterRef, ",
        ),
    ],
)
def test_bad_file_is_refused_with_a_message(tmp_path: Path, text: str, sentence: str) -> None:
    (tmp_path / "bad.yaml").write_text(text)
    cluster = LocalCluster(tmp_path / "c", brokers=None, files=[tmp_path / "bad.yaml"])
    run = forked.run(forked.OPERATOR, cluster.command[3:], timeout=60)
    assert run.returncode in (1, 2)
    assert run.stdout == b""
    assert sentence in run.stderr.decode()
    assert "Traceback" not in run.stderr.decode()


def test_metrics_tell_what_a_broker_has_and_does(cluster: LocalCluster) -> None:
    cluster.create_topic("t", 3)
    produce(cluster.bootstrap, "t", values(1_000), **{"sticky.partitioning.linger.ms": 0})
    for broker_id in range(3):
        samples = metrics_of(cluster, broker_id)
        assert samples["plimsoll_broker_partitions"] == 3
        assert samples["plimsoll_broker_leaders"] == 1
        assert samples["plimsoll_broker_under_replicated_partitions"] == 0
        assert samples['plimsoll_broker_isr_size_partitions{size="3"}'] == 1
        assert samples["plimsoll_broker_ready"] == 1
    # A consumer has the topic of groups made, with partitions of its own.
    consume_all(cluster.bootstrap, "t", 3)
    totals: Counter[str] = Counter()
    for broker_id in range(3):
        totals.update(metrics_of(cluster, broker_id))
    written = totals["plimsoll_broker_bytes_in_total"]
    assert written > 100 * 1_000
    assert totals["plimsoll_broker_bytes_out_total"] >= written
    assert totals["plimsoll_broker_replication_bytes_in_total"] == 2 * written


def metrics_of(cluster: LocalCluster, broker_id: int) -> dict[str, float]:
    lines = cluster.http(broker_id, "/metrics")[1].splitlines()
    samples = (line.rsplit(" ", 1) for line in lines if line and not line.startswith("#"))
    return {name: float(value) for name, value in samples}


def test_producer_survives_clean_restart_of_the_whole_cluster(tmp_path: Path) -> None:
    cluster = LocalCluster(tmp_path / "c", forked=False)
    with cluster:
        cluster.create_topic("t", 3)
        producer = a_producer(cluster.bootstrap)
        producer.produce("t", b"before")
        assert producer.flush(30) == 0
        cluster.stop()
    with cluster:
        producer.produce("t", b"after")
        assert producer.flush(60) == 0
        assert set(consume_all(cluster.bootstrap, "t", 3)) == {b"before", b"after"}
