"""Which ports a local cluster's brokers have, now and after a restart."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import pytest
from typer.testing import CliRunner

from plimsoll_operator import cli
from plimsoll_operator.local import ports
from plimsoll_operator.local.cluster import LocalOptions
from plimsoll_operator.local.layout import (
    PORT_MAX,
    BadDirectory,
    DirectoryLayout,
    Remembered,
    plan,
)
from plimsoll_operator.local.ports import HeldPorts, Ports

FIRST = 19_300
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
    grown = plan(known, (3,), None, 19_092, held)
    assert kafka(grown.brokers) == {0: 19_092, 1: 19_093, 2: 19_094, 3: 19_095}
    assert plan(grown, (0, 1, 2, 3), None, None, held) == grown
    assert plan(grown, (0, 1, 2, 3), None, 19_092, held) == grown


def test_brokers_keep_ports_when_one_leaves(held: HeldPorts) -> None:
    """Each that came after it moved by one, to where another had been."""
    known = plan(None, (0, 1, 2), None, 19_092, held)
    grown = plan(known, (3,), None, 19_092, held)
    assert plan(grown, (0, 2, 3), None, 19_092, held) == grown


def test_removed_broker_frees_its_port(
    held: HeldPorts,
) -> None:
    """Broker 3 joined later, and the file says nothing of it: broker 2 was given its port."""
    known = plan(None, (0, 1, 2), None, 19_092, held)
    grown = plan(known, (3,), None, 19_092, held)
    moved = plan(grown, (0, 1, 2), None, 19_093, held)
    later = plan(moved, (3,), None, 19_093, held)
    assert kafka(later.brokers) == {0: 19_093, 1: 19_094, 2: 19_095, 3: 19_096}
    assert later.brokers[3].metrics == grown.brokers[3].metrics


def test_picked_port_yields_to_stated_one(held: HeldPorts) -> None:
    with in_order(FIRST):
        known = plan(None, (0, 1), None, None, held)
    with HeldPorts() as others:
        planned = plan(known, (0, 1), None, FIRST, others)
    assert kafka(planned.brokers) == {0: FIRST, 1: FIRST + 1}
    assert len(set(every_port(planned))) == 8


def test_ports_that_were_picked_are_kept(held: HeldPorts) -> None:
    known = plan(None, (0, 1), None, None, held)
    grown = plan(known, (2,), None, None, held)
    assert plan(grown, (0, 1, 2), None, None, held) == grown


def in_order(first: int) -> object:
    """What is tried is the lowest of those that nothing was tried of."""
    return patch.object(ports.random, "choice", side_effect=range(first, PORT_MAX))


def every_port(planned: Remembered) -> list[int]:
    brokers = planned.brokers.values()
    own = [port for one in brokers for port in (one.kafka, one.metrics, one.replication)]
    return [planned.controller_port, planned.api_port, *own]


def test_picked_ports_avoid_stated_ones(held: HeldPorts) -> None:
    with in_order(FIRST):
        planned = plan(None, (0, 1, 2), None, FIRST, held)
    assert kafka(planned.brokers) == {0: FIRST, 1: FIRST + 1, 2: FIRST + 2}
    assert len(set(every_port(planned))) == 11
    with HeldPorts() as others:
        grown = plan(planned, (3,), None, FIRST, others)
    assert len(set(every_port(grown))) == 14


def test_ports_after_restart_avoid_other_brokers() -> None:
    with HeldPorts() as before, in_order(FIRST):
        known = plan(None, (0, 1), None, None, before)
    with HeldPorts() as after, in_order(FIRST):
        grown = plan(known, (0, 1, 2), None, None, after)
    assert len(set(every_port(grown))) == 11


def test_picked_ports_avoid_ephemeral_and_known_ports(held: HeldPorts) -> None:
    planned = plan(None, tuple(range(20)), None, None, held)
    picked = every_port(planned)
    assert len(set(picked)) == 62
    assert max(picked) < SERVICES_FIRST


def test_new_directory_is_private_and_existing_unchanged(
    tmp_path: Path,
) -> None:
    there = tmp_path / "there"
    there.mkdir(mode=0o755)
    for root in (there, tmp_path / "made"):
        DirectoryLayout(root).prepare()
    modes = {name: (tmp_path / name).stat().st_mode & 0o777 for name in ("there", "made")}
    assert modes == {"there": 0o755, "made": 0o700}


def test_directory_that_all_users_can_write_is_refused(tmp_path: Path) -> None:
    """They could put files of their own in the place of the cluster's."""
    root = tmp_path / "there"
    root.mkdir()
    root.chmod(0o1777)
    with pytest.raises(BadDirectory, match="every user can write to it"):
        DirectoryLayout(root).prepare()
    root.chmod(0o755)
    DirectoryLayout(root).prepare()


def test_local_cluster_writes_for_its_owner_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Brokers and drivers inherit it: an existing directory stays open to others' eyes."""

    async def started(wishes: LocalOptions) -> None:
        (wishes.root / "records").write_text("secret")

    for name in ("tune", "switch_soon", "log_to_file", "log_to_terminal"):
        monkeypatch.setattr(cli, name, lambda *_, **__: None)
    monkeypatch.setattr(cli, "_local", started)
    tmp_path.chmod(0o755)
    before = os.umask(0o022)
    try:
        found = CliRunner().invoke(cli.app, ["local", "--data", str(tmp_path)])
    finally:
        os.umask(before)
    assert found.exit_code == 0, found.output
    modes = {path.name: path.stat().st_mode & 0o077 for path in tmp_path.iterdir()}
    assert modes == {"records": 0, "logs": 0, "history": 0}
