"""What a local cluster tells its user of Events."""

from __future__ import annotations

import itertools
import logging
from types import SimpleNamespace
from typing import cast

import pytest

from plimsoll_operator.api_server.server import MemoryApiServer
from plimsoll_operator.kube import resources
from plimsoll_operator.local.machine import LocalPods, Machine

FENCED = {
    "metadata": {"name": "e", "namespace": "default"},
    "eventTime": "2026-11-22T00:00:00.000000Z",
    "type": "Warning",
    "reason": "BrokerFenced",
    "note": "Broker 1: shutdown.",
    "regarding": {"kind": "LogCluster", "name": "main", "namespace": "default"},
    "reportingController": "plimsoll",
}


@pytest.mark.parametrize(
    ("stopping", "level"), [(False, logging.WARNING), (True, logging.INFO)], ids=["runs", "stops"]
)
def test_leaving_broker_is_warned_unless_stopping(
    stopping: bool, level: int, caplog: pytest.LogCaptureFixture
) -> None:
    uids = itertools.count()
    server = MemoryApiServer(lambda: 1_800_000_000_000, lambda: str(next(uids)))
    pods = cast("LocalPods", SimpleNamespace(tell=lambda *_: None))
    machine = Machine(server, pods, lambda _: None)
    machine.stopping = stopping
    with caplog.at_level(logging.INFO):
        server.seed(resources.EVENTS, FENCED)
    assert [one.levelno for one in caplog.records if "BrokerFenced" in one.message] == [level]


def test_event_without_any_detail_is_shown() -> None:
    """The first observer that raised kept it from the others."""
    uids = itertools.count()
    server = MemoryApiServer(lambda: 1_800_000_000_000, lambda: str(next(uids)))
    Machine(server, cast("LocalPods", SimpleNamespace(tell=lambda *_: None)), lambda _: None)
    server.seed(resources.EVENTS, {"metadata": FENCED["metadata"]})
    shown = server.store.resources[resources.CORE_EVENTS.path()]
    assert server.store.get(shown, ("default", "e")) is not None
