"""Which ports a local cluster's brokers have, now and after a restart."""

from __future__ import annotations

from plimsoll_operator.local.layout import Ports, next_port, plan


def kafka(brokers: dict[int, Ports]) -> dict[int, int]:
    return {broker_id: ports.kafka for broker_id, ports in brokers.items()}


def test_broker_that_joins_later_has_the_next_port() -> None:
    known = plan(None, (0, 1, 2), None, 19_092)
    grown = plan(known, (3,), None, next_port(known.brokers, 19_092))
    assert kafka(grown.brokers) == {0: 19_092, 1: 19_093, 2: 19_094, 3: 19_095}
    assert plan(grown, (0, 1, 2, 3), None, None) == grown
    assert plan(grown, (0, 1, 2, 3), None, 19_092) == grown


def test_ports_that_the_kernel_picked_are_kept() -> None:
    known = plan(None, (0, 1), None, None)
    assert next_port(known.brokers, None) is None
    grown = plan(known, (2,), None, None)
    assert plan(grown, (0, 1, 2), None, None) == grown
