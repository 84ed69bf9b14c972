"""Unmodified clients write to Plimsoll and read from it: what they read is what they wrote."""

import pytest
from tests.conformance import scripts
from tests.conformance.conftest import PARTITIONS, Peer
from tests.conformance.kafka_jars import KafkaJars

EACH = 500
CLIENTS = {
    "librdkafka (confluent-kafka)": scripts.with_confluent,
    "kafka-python": scripts.with_kafka_python,
    "aiokafka": scripts.with_aiokafka,
    "kcat": scripts.with_kcat,
}


@pytest.mark.parametrize(
    "script",
    [
        pytest.param(script, marks=pytest.mark.client(client, "writes and reads"))
        for client, script in CLIENTS.items()
    ],
    ids=lambda script: script.__name__.removeprefix("with_"),
)
def test_client_reads_back_what_it_wrote_in_order(
    peer: Peer, peer_topic: str, script: object
) -> None:
    records = scripts.sent(PARTITIONS, EACH)
    assert callable(script)
    assert script(peer.bootstrap, peer_topic, records) == records


@pytest.mark.client("Java {jars}", "writes and reads")
def test_kafka_console_tools_round_trip(peer: Peer, peer_topic: str, jars: KafkaJars) -> None:
    records = scripts.sent(PARTITIONS, EACH)
    found = scripts.with_java_console(peer.bootstrap, peer_topic, records, jars)
    everything = sorted(value for values in found.values() for value in values)
    assert everything == sorted(value for values in records.values() for value in values)
    for values in found.values():
        written_in_order = [value for sent in records.values() for value in sent if value in values]
        assert values == written_in_order, "a partition holds its records in the order of sending"
