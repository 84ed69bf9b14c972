"""Requests that make little sense hear what Apache Kafka tells them, but for what is stated."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.conformance.apache_kafka import ApacheKafka
from tests.conformance.odd.answers import every_answer
from tests.conformance.odd.differences import DIFFERENCES, OF_KAFKA
from tests.integration.declared import log_cluster
from tests.integration.listening import free_ports
from tests.integration.local_cluster import LocalCluster

FOR_GOOD = {"log.retention.ms": "-1"}
"""Records of long ago are sent."""
KAFKAS = {"offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1"}
OURS = {"auto.create.topics.enable": "false", "group.initial.rebalance.delay.ms": 0}


DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "compatibility.md"


def test_allowed_differences_are_stated_in_document() -> None:
    text = DOCUMENT.read_text()
    ours = [one.why for one in DIFFERENCES if not one.why.startswith(OF_KAFKA)]
    assert [why for why in ours if why not in text] == []


@pytest.mark.full
def test_odd_requests_are_answered_as_by_apache_kafka(tmp_path: Path) -> None:
    file = tmp_path / "cluster.yaml"
    (port,) = free_ports(1)
    file.write_text(
        log_cluster(
            brokers=1,
            listeners=[{"name": "open", "port": port}],
            authorization={"mode": "Enforce", "superUsers": ["User:ANONYMOUS"]},
            config={"offsets.topic.num.partitions": 1, **OURS, **FOR_GOOD},
        )
    )
    with LocalCluster(tmp_path / "cluster", brokers=None, files=[file]):
        ours = asyncio.run(every_answer(port))
    configs = {**KAFKAS, **FOR_GOOD}
    with ApacheKafka(tmp_path / "kafka", authorizes=True, configs=configs) as kafka:
        kafkas = asyncio.run(every_answer(kafka.ports[0]))
    assert ours.keys() == kafkas.keys()
    differing = [name for name, answer in ours.items() if answer != kafkas[name]]
    unstated = [
        f"{name}: {ours[name]}; Kafka: {kafkas[name]}"
        for name in differing
        if not any(stated.covers(name) for stated in DIFFERENCES)
    ]
    assert unstated == [], "\n".join(unstated)
    gone = [one for one in DIFFERENCES if not any(map(one.covers, differing))]
    assert gone == [], "these are answered alike"
