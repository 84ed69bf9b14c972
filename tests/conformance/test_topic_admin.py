"""Topics are administered by unmodified clients: what they print is what they print of Apache
Kafka, on which the same commands are run."""

import itertools
import json
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import confluent_kafka
import kafka.admin
import pytest
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
)
from tests.conformance import raw_requests, scripts
from tests.conformance.apache_kafka import ApacheKafka
from tests.conformance.kafka_jars import KafkaJars, kafka_jars
from tests.integration.local_cluster import LocalCluster, wait_for
from tests.kafka_python import left_sockets

from plimsoll_wire.compression import GZIP, ZSTD

TIMEOUT_S = 60
DECLARED = """\
apiVersion: plimsoll.dev/v1alpha1
kind: Topic
metadata: {name: declared}
spec: {clusterRef: {name: main}, partitions: 1, config: {retention.ms: 1000}}
"""

Tool = Callable[..., str]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    directory = tmp_path_factory.mktemp("admin")
    declared = directory / "declared.yaml"
    declared.write_text(DECLARED)
    with LocalCluster(directory / "data", brokers=1, files=[declared]) as local:
        local.wait_isr("declared", 1)
        yield local


@pytest.fixture(scope="module")
def apache_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheKafka]:
    configs = {"auto.create.topics.enable": "true", "num.partitions": "6"}
    with ApacheKafka(tmp_path_factory.mktemp("kafka"), configs=configs) as found:
        yield found


@pytest.fixture(scope="module")
def tools() -> KafkaJars:
    return kafka_jars()


def create(admin: AdminClient, *topics: NewTopic) -> None:
    for future in admin.create_topics(list(topics)).values():
        future.result(TIMEOUT_S)


def alter(admin: AdminClient, topic: str, changes: list[ConfigEntry]) -> None:
    kind = ConfigResource.Type.TOPIC
    resource = ConfigResource(kind, topic, incremental_configs=changes)
    (future,) = admin.incremental_alter_configs([resource]).values()
    future.result(TIMEOUT_S)


def run(jars: KafkaJars, bootstrap: str, main_class: str, *words: str) -> str:
    """What a tool printed: no stack, no time, no log line."""
    done = subprocess.run(
        jars.command(main_class, "--bootstrap-server", bootstrap, *words),
        check=False,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    lines = (done.stdout + done.stderr).splitlines()
    noise = re.compile(r"^SLF4J|^\s+at |^\d\d:\d\d|^\s*$|^Caused by")
    return "\n".join(line for line in lines if not noise.search(line))


def told_alike(
    cluster: LocalCluster, apache_kafka: ApacheKafka, jars: KafkaJars, main_class: str, *words: str
) -> str:
    """Runs a command on both; what both printed."""
    ours = run(jars, cluster.bootstrap, main_class, *words)
    theirs = run(jars, apache_kafka.bootstrap, main_class, *words)
    assert _comparable(ours) == _comparable(theirs)
    return ours


def _comparable(printed: str) -> list[str]:
    """Without ids, and without what each cluster's own defaults are."""
    own = re.sub(r"TopicId: \S+", "TopicId", printed)
    own = re.sub(r"(DYNAMIC_DEFAULT_BROKER|DEFAULT)_CONFIG:min.insync.replicas=1,? ?", "", own)
    return sorted(own.splitlines())


@pytest.mark.client("Java 4.1", "topics and configs", both=True)
def test_tools_alter_and_describe_topics_like_kafka(
    cluster: LocalCluster, apache_kafka: ApacheKafka, tools: KafkaJars
) -> None:
    def both(main_class: str, *words: str) -> str:
        return told_alike(cluster, apache_kafka, tools, main_class, *words)

    named = ("--topic", "altered")
    entity = ("--entity-type", "topics", "--entity-name", "altered")
    both(
        tools.topics, "--create", *named, "--partitions", "2", "--config", "max.message.bytes=1000"
    )
    assert "max.message.bytes=1000" in both(tools.configs, "--describe", *entity)
    both(
        tools.configs,
        "--alter",
        *entity,
        "--add-config",
        "index.interval.bytes=5000,preallocate=false",
    )
    both(tools.configs, "--alter", *entity, "--delete-config", "max.message.bytes")
    described = both(tools.configs, "--describe", *entity)
    assert "DYNAMIC_TOPIC_CONFIG:index.interval.bytes=5000" in described
    both(tools.topics, "--alter", *named, "--partitions", "5")
    assert "PartitionCount: 5" in run(tools, cluster.bootstrap, tools.topics, "--describe", *named)


SHOWN_OTHERWISE = {
    "flush.ms": "Kafka has no default of its broker config",
    "min.insync.replicas": "a cluster's default is kept when the topic is made",
    "retention.ms": "Kafka's broker config is in hours",
    "segment.ms": "Kafka's broker config is in hours",
    "segment.jitter.ms": "Kafka's broker config is in hours",
    "unclean.recovery.strategy": "Kafka 4.1 has it not yet",
}
OF_COMPACTION = {
    "cleanup.policy",
    "delete.retention.ms",
    "max.compaction.lag.ms",
    "min.cleanable.dirty.ratio",
    "min.compaction.lag.ms",
}


def test_topic_configs_are_described_with_defaults_and_synonyms(
    cluster: LocalCluster, apache_kafka: ApacheKafka, tools: KafkaJars
) -> None:
    found = []
    for bootstrap in (cluster.bootstrap, apache_kafka.bootstrap):
        run(tools, bootstrap, tools.topics, "--create", "--topic", "plain", "--partitions", "1")
        words = ("--describe", "--all", "--entity-type", "topics", "--entity-name", "plain")
        printed = run(tools, bootstrap, tools.configs, *words)
        lines = {line.strip().partition("=")[0]: line for line in printed.splitlines()[1:]}
        left_out = SHOWN_OTHERWISE.keys() | OF_COMPACTION
        found.append({name: line for name, line in lines.items() if name not in left_out})
    assert found[0] == found[1]


def test_kafka_reassign_partitions_verifies_without_throttle(
    cluster: LocalCluster, tools: KafkaJars, tmp_path: Path
) -> None:
    """It deletes configs of brokers and topics that nobody set."""
    plan = tmp_path / "plan.json"
    move = {"topic": "declared", "partition": 0, "replicas": [0]}
    plan.write_text(json.dumps({"version": 1, "partitions": [move]}))
    words = ("--reassignment-json-file", str(plan), "--verify")
    printed = run(tools, cluster.bootstrap, tools.reassign_partitions, *words)
    assert "Reassignment of partition declared-0 is completed." in printed
    assert "Exception" not in printed
    throttled = run(
        tools,
        cluster.bootstrap,
        tools.reassign_partitions,
        *("--reassignment-json-file", str(plan), "--execute", "--throttle", "1000"),
    )
    assert "spec.movement.bytesPerSecond" in throttled


def test_declared_topic_and_brokers_name_their_object(
    cluster: LocalCluster, tools: KafkaJars
) -> None:
    topic = ("--entity-type", "topics", "--entity-name", "declared")
    altered = run(
        tools, cluster.bootstrap, tools.configs, "--alter", *topic, "--add-config", "flush.ms=5"
    )
    assert "because the object Topic" in altered
    assert "edit spec.config of that object." in altered
    words = ("--alter", "--topic", "declared", "--partitions", "3")
    told = run(tools, cluster.bootstrap, tools.topics, *words)
    assert "edit spec.partitions of that object." in told
    broker = ("--entity-type", "brokers", "--entity-name", "0")
    words = ("--alter", *broker, "--add-config", "log.retention.ms=5")
    assert "of the object LogCluster" in run(tools, cluster.bootstrap, tools.configs, *words)


def test_kafka_log_dirs_describes_the_volume(
    cluster: LocalCluster, apache_kafka: ApacheKafka, tools: KafkaJars
) -> None:
    shapes = []
    for bootstrap in (cluster.bootstrap, apache_kafka.bootstrap):
        admin = AdminClient({"bootstrap.servers": bootstrap})
        create(admin, NewTopic("sized", 1))
        produced(bootstrap, "sized", 100)
        words = ("--describe", "--topic-list", "sized")
        printed = run(tools, bootstrap, tools.log_dirs, *words)
        (broker,) = json.loads(printed.splitlines()[-1])["brokers"]
        (directory,) = broker["logDirs"]
        (partition,) = directory["partitions"]
        assert partition["size"] > 100
        shape = dict.fromkeys(directory), partition | {"size": 0}, directory["error"]
        shapes.append((broker["broker"], shape))
    assert shapes[0] == shapes[1]


def produced(bootstrap: str, topic: str, count: int) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap})
    for _ in range(count):
        producer.produce(topic, b"x" * 10)
    assert producer.flush(TIMEOUT_S) == 0


def test_tool_describes_producers_like_kafka(
    cluster: LocalCluster, apache_kafka: ApacheKafka, tools: KafkaJars
) -> None:
    """Their ids and times differ."""
    tables = []
    for bootstrap in (cluster.bootstrap, apache_kafka.bootstrap):
        admin = AdminClient({"bootstrap.servers": bootstrap})
        create(admin, NewTopic("written", 1))
        for count in (3, 5):
            producer = confluent_kafka.Producer(
                {"bootstrap.servers": bootstrap, "enable.idempotence": True}
            )
            for _ in range(count):
                producer.produce("written", b"x")
            assert producer.flush(TIMEOUT_S) == 0
        words = ("describe-producers", "--topic", "written", "--partition", "0")
        head, *rows = [line.split() for line in _printed(tools, bootstrap, *words)]
        told = [dict(zip(head, row, strict=True)) for row in rows]
        assert len({row.pop("ProducerId") for row in told}) == 2
        assert all(int(row.pop("LastTimestamp")) > 0 for row in told)
        tables.append(sorted(tuple(row.items()) for row in told))
    assert tables[0] == tables[1]
    assert sorted(dict(row)["LastSequence"] for row in tables[0]) == ["2", "4"]


def _printed(jars: KafkaJars, bootstrap: str, *words: str) -> list[str]:
    return run(jars, bootstrap, jars.transactions, *words).splitlines()


def test_tool_describes_topic_defaults_of_broker(cluster: LocalCluster, tools: KafkaJars) -> None:
    words = ("--describe", "--all", "--entity-type", "brokers", "--entity-name", "0")
    printed = run(tools, cluster.bootstrap, tools.configs, *words)
    for told in ("num.partitions=6", "default.replication.factor=1", "min.insync.replicas=1"):
        assert f"  {told} sensitive=false" in printed


CODECS = ("uncompressed", "gzip", "snappy", "lz4", "zstd")
RECORDS = 20
"""For each topic, of each producer."""


def test_batches_are_stored_in_topic_codec(
    cluster: LocalCluster, apache_kafka: ApacheKafka, tools: KafkaJars
) -> None:
    """Of a producer of each codec; Kafka's own reader opens all of them.  In how many batches the
    records come is the producer's to say."""
    found = []
    directories = (cluster.directory, apache_kafka.data_dir(0))
    peers = zip((cluster.bootstrap, apache_kafka.bootstrap), directories, strict=True)
    for bootstrap, directory in peers:
        admin = AdminClient({"bootstrap.servers": bootstrap})
        topics = [NewTopic(f"in-{each}", 1, config={"compression.type": each}) for each in CODECS]
        create(admin, *topics)
        for codec in CODECS:
            sent_as = "none" if codec == "uncompressed" else codec
            settings = {"compression.type": sent_as, "linger.ms": 60_000}
            producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, **settings})
            for topic in topics:
                for n in range(RECORDS):
                    producer.produce(topic.topic, b"x" * 200, key=b"%d" % n)
            assert producer.flush(TIMEOUT_S) == 0
        logs = [file for each in CODECS for file in directory.rglob(f"in-{each}-0/*.log")]
        found.append(scripts.codecs_of_records(scripts.dump_segments(logs, tools)))
    assert found[0] == found[1]
    assert found[0] == [
        (offset, "none" if each == "uncompressed" else each)
        for each in CODECS
        for offset in range(RECORDS * len(CODECS))
    ]


# --- librdkafka and kafka-python ------------------------------------------------------------------


def configs_of(admin: AdminClient, topic: str) -> dict[str, str]:
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    (future,) = admin.describe_configs([resource]).values()
    return {name: entry.value for name, entry in future.result(TIMEOUT_S).items()}


@pytest.mark.client("librdkafka (confluent-kafka)", "topics and configs")
def test_librdkafka_alters_configs_and_adds_partitions(cluster: LocalCluster) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    create(admin, NewTopic("by-librdkafka", 1))
    changes = [
        ConfigEntry("flush.ms", "7", incremental_operation=AlterConfigOpType.SET),
        ConfigEntry("cleanup.policy", "delete", incremental_operation=AlterConfigOpType.APPEND),
    ]
    alter(admin, "by-librdkafka", changes)
    found = configs_of(admin, "by-librdkafka")
    assert (found["flush.ms"], found["cleanup.policy"]) == ("7", "delete")
    for future in admin.create_partitions([NewPartitions("by-librdkafka", 4)]).values():
        future.result(TIMEOUT_S)
    assert len(admin.list_topics(timeout=TIMEOUT_S).topics["by-librdkafka"].partitions) == 4


def test_policy_list_is_emptied_and_filled(
    cluster: LocalCluster, apache_kafka: ApacheKafka
) -> None:
    found = []
    for bootstrap in (cluster.bootstrap, apache_kafka.bootstrap):
        admin = AdminClient({"bootstrap.servers": bootstrap})
        create(admin, NewTopic("kept", 1))
        for operation, policy in (("SUBTRACT", "delete"), ("APPEND", "compact"), ("SET", "")):
            change = ConfigEntry(
                "cleanup.policy", policy, incremental_operation=AlterConfigOpType[operation]
            )
            alter(admin, "kept", [change])
            wanted = policy if operation == "APPEND" else ""
            wait_for(
                f"{operation} is described",
                lambda admin=admin, wanted=wanted: (
                    configs_of(admin, "kept")["cleanup.policy"] == wanted
                ),
            )
        torn = NewTopic("unmade", 1, config={"cleanup.policy": "compact,"})
        (future,) = admin.create_topics([torn]).values()
        with pytest.raises(confluent_kafka.KafkaException) as error:
            future.result(TIMEOUT_S)
        found.append(error.value.args[0].code())
    assert found[0] == found[1]


def test_zstd_with_old_versions_matches_kafka(
    cluster: LocalCluster, apache_kafka: ApacheKafka
) -> None:
    """Of a topic of each codec; by raw frames, as no client sends such."""
    found = []
    for bootstrap in (cluster.bootstrap, apache_kafka.bootstrap):
        admin = AdminClient({"bootstrap.servers": bootstrap})
        codecs = ("producer", "gzip", "zstd")
        topics = [NewTopic(f"old-{each}", 1, config={"compression.type": each}) for each in codecs]
        create(admin, *topics)
        codes = []
        for topic in topics:
            leader = raw_requests.leader_of(admin, topic.topic)
            for codec, version in itertools.product((ZSTD, GZIP), (3, 6, 7)):
                codes.append(raw_requests.produce(leader, topic.topic, codec, version))
            codes += [raw_requests.fetch(leader, topic.topic, version) for version in (4, 9, 10)]
        found.append(codes)
    assert found[0] == found[1]
    assert found[0][:6] == [76, 76, 0, 0, 0, 0]


@pytest.mark.client("kafka-python", "topics and configs")
@left_sockets()
def test_kafka_python_alters_configs_and_adds_partitions(cluster: LocalCluster) -> None:
    admin = kafka.admin.KafkaAdminClient(bootstrap_servers=cluster.bootstrap)
    admin.create_topics([kafka.admin.NewTopic("by-kafka-python", 1, 1)])
    resource = kafka.admin.ConfigResource(
        kafka.admin.ConfigResourceType.TOPIC, "by-kafka-python", configs={"flush.ms": "7"}
    )
    admin.alter_configs([resource])
    admin.create_partitions({"by-kafka-python": kafka.admin.NewPartitions(4)})
    admin.close()
    other = AdminClient({"bootstrap.servers": cluster.bootstrap})
    assert configs_of(other, "by-kafka-python")["flush.ms"] == "7"
    assert len(other.list_topics(timeout=TIMEOUT_S).topics["by-kafka-python"].partitions) == 4


def test_producer_creates_missing_topic_in_local_mode(
    cluster: LocalCluster, apache_kafka: ApacheKafka
) -> None:
    for bootstrap in (cluster.bootstrap, apache_kafka.bootstrap):
        produced(bootstrap, "made-by-a-producer", 10)
        admin = AdminClient({"bootstrap.servers": bootstrap})
        found = wait_for(
            "the topic is listed",
            lambda admin=admin: admin.list_topics(timeout=5).topics.get("made-by-a-producer"),
        )
        assert len(found.partitions) == 6
