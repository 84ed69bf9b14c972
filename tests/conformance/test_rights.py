"""The authorization matrix: every API that is served, asked with every right, answers as Apache
Kafka does: the same error codes, the same visible names, the same authorized operations."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.conformance.rights.__main__ import asked_of_kafka
from tests.conformance.rights.answers import (
    RECORDED,
    Peer,
    Told,
    as_stated,
    differences,
    every_answer,
    read,
)
from tests.conformance.rights.holders import HOLDERS
from tests.integration.declared import log_cluster
from tests.integration.listening import free_ports
from tests.integration.local_cluster import LocalCluster

FEW = tuple(holder for holder in HOLDERS if not holder.startswith("all but"))
"""With each right alone, and none; who may do all but one are asked in long runs."""


async def asked(open_port: int, secured_port: int, holders: Sequence[str]) -> Told:
    async with Peer(open_port, secured_port) as peer:
        await peer.prepare()
        return await every_answer(peer, holders)


@pytest.mark.parametrize(
    "holders", [FEW, pytest.param(tuple(HOLDERS), marks=pytest.mark.full)], ids=["few", "all"]
)
def test_every_api_authorizes_like_apache_kafka(tmp_path: Path, holders: Sequence[str]) -> None:
    ports = free_ports(2)
    file = tmp_path / "cluster.yaml"
    listeners = [
        {"name": "open", "port": ports[0]},
        {"name": "secured", "port": ports[1], "authentication": ["ScramSha512"]},
    ]
    file.write_text(
        log_cluster(
            brokers=1,
            listeners=listeners,
            authorization={"mode": "Enforce", "superUsers": ["User:ANONYMOUS"]},
            config={"offsets.topic.num.partitions": 1, "auto.create.topics.enable": "false"},
        )
    )
    with LocalCluster(tmp_path / "cluster", brokers=None, files=[file]):
        told = asyncio.run(asked(*ports, holders))
    found = differences(told, as_stated(read(RECORDED.read_text())))
    assert found == [], "\n".join(found)


@pytest.mark.full
def test_apache_kafka_answers_as_it_was_recorded(tmp_path: Path) -> None:
    found = differences(asked_of_kafka(tmp_path / "kafka"), read(RECORDED.read_text()))
    assert found == [], "\n".join(found)
