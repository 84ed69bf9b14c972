"""Unmodified clients write to Plimsoll and read from it: what they read is what they wrote."""

import pytest
from tests.conformance import scripts
from tests.conformance.conftest import PARTITIONS
from tests.conformance.kafka_jars import KafkaJars
from tests.integration.local_cluster import LocalCluster

EACH = 500


@pytest.mark.parametrize(
    "script",
    [scripts.with_confluent, scripts.with_kafka_python, scripts.with_aiokafka, scripts.with_kcat],
    ids=lambda script: script.__name__.removeprefix("with_"),
)
def test_client_reads_back_what_it_wrote_in_order(
    cluster: LocalCluster, topic: str, script: object
) -> None:
    records = scripts.sent(PARTITIONS, EACH)
    assert callable(script)
    assert script(cluster.bootstrap, topic, records) == records


def test_kafkas_own_console_tools_read_back_what_they_wrote(
    cluster: LocalCluster, topic: str, jars: KafkaJars
) -> None:
    records = scripts.sent(PARTITIONS, EACH)
    found = scripts.with_java_console(cluster.bootstrap, topic, records, jars)
    everything = sorted(value for values in found.values() for value in values)
    assert everything == sorted(value for values in records.values() for value in values)
    for values in found.values():
        written_in_order = [value for sent in records.values() for value in sent if value in values]
        assert values == written_in_order, "a partition holds its records in the order of sending"
