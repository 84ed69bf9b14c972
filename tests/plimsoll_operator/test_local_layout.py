"""Which ports a local cluster's brokers have, now and after a restart."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from plimsoll_operator.local.layout import DirectoryLayout, plan
from plimsoll_operator.local.ports import HeldPorts, Ports, next_port

SERVICES_FIRST = 30_000
"""From here on Kubernetes gives ports to Services of the type NodePort, by default."""


@pytest.fixture
def held() -> Iterator[HeldPorts]:
    with HeldPorts() as ports:
        yield ports


def kafka(brokers: dict[int, Ports]) -> dict[int, int]:
    return {broker_id: ports.kafka for broker_id, ports in brokers.items()}


def test_broker_that_joins_later_has_the_next_port(held: HeldPorts) -> None:
    known = plan(None, (0, 1, 2), None, 19_092, held)
    grown = plan(known, (3,), None, next_port(known.brokers, 19_092), held)
    assert kafka(grown.brokers) == {0: 19_092, 1: 19_093, 2: 19_094, 3: 19_095}
    assert plan(grown, (0, 1, 2, 3), None, None, held) == grown
    assert plan(grown, (0, 1, 2, 3), None, 19_092, held) == grown


def test_ports_that_were_picked_are_kept(held: HeldPorts) -> None:
    known = plan(None, (0, 1), None, None, held)
    assert next_port(known.brokers, None) is None
    grown = plan(known, (2,), None, None, held)
    assert plan(grown, (0, 1, 2), None, None, held) == grown


def test_picked_ports_are_none_that_connections_or_services_are_given(held: HeldPorts) -> None:
    planned = plan(None, tuple(range(20)), None, None, held)
    brokers = planned.brokers.values()
    picked = [planned.controller_port, planned.api_port]
    picked += [port for one in brokers for port in (one.kafka, one.metrics, one.replication)]
    assert len(set(picked)) == 62
    assert max(picked) < SERVICES_FIRST


def test_directory_that_was_made_is_for_its_owner_alone_and_one_that_was_there_stays(
    tmp_path: Path,
) -> None:
    there = tmp_path / "there"
    there.mkdir(mode=0o755)
    for root in (there, tmp_path / "made"):
        DirectoryLayout(root).prepare()
    modes = {name: (tmp_path / name).stat().st_mode & 0o777 for name in ("there", "made")}
    assert modes == {"there": 0o755, "made": 0o700}
