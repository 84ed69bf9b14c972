"""Which ports a local cluster's brokers have, now and after a restart."""

from __future__ import annotations

import socket
from pathlib import Path
from unittest.mock import patch

import pytest

from plimsoll_operator.local import layout
from plimsoll_operator.local.layout import (
    LOOPBACK,
    DirectoryLayout,
    PortPicker,
    Ports,
    next_port,
    plan,
)

CONNECTIONS_FIRST = 32_768
"""From here on Linux gives ports to connections, by default."""


def kafka(brokers: dict[int, Ports]) -> dict[int, int]:
    return {broker_id: ports.kafka for broker_id, ports in brokers.items()}


def test_broker_that_joins_later_has_the_next_port() -> None:
    known = plan(None, (0, 1, 2), None, 19_092)
    grown = plan(known, (3,), None, next_port(known.brokers, 19_092))
    assert kafka(grown.brokers) == {0: 19_092, 1: 19_093, 2: 19_094, 3: 19_095}
    assert plan(grown, (0, 1, 2, 3), None, None) == grown
    assert plan(grown, (0, 1, 2, 3), None, 19_092) == grown


def test_ports_that_were_picked_are_kept() -> None:
    known = plan(None, (0, 1), None, None)
    assert next_port(known.brokers, None) is None
    grown = plan(known, (2,), None, None)
    assert plan(grown, (0, 1, 2), None, None) == grown


def test_picked_ports_are_none_that_a_connection_may_have_after_a_restart() -> None:
    planned = plan(None, tuple(range(20)), None, None)
    brokers = planned.brokers.values()
    picked = [planned.controller_port, planned.api_port]
    picked += [port for one in brokers for port in (one.kafka, one.metrics, one.replication)]
    assert len(set(picked)) == 62
    assert max(picked) < CONNECTIONS_FIRST


def test_picker_takes_no_port_that_is_in_use() -> None:
    with socket.create_server((LOOPBACK, 0)) as other:
        port = other.getsockname()[1]
        picker = PortPicker()
        only = patch.multiple(layout, PICKED=range(port, port + 1), TRIES=1)
        with only, pytest.raises(OSError, match="no free port among 1"):
            picker.pick()
        picker.close()


def test_directory_that_was_made_is_for_its_owner_alone_and_one_that_was_there_stays(
    tmp_path: Path,
) -> None:
    there = tmp_path / "there"
    there.mkdir(mode=0o755)
    for root in (there, tmp_path / "made"):
        DirectoryLayout(root).prepare()
    modes = {name: (tmp_path / name).stat().st_mode & 0o777 for name in ("there", "made")}
    assert modes == {"there": 0o755, "made": 0o700}
