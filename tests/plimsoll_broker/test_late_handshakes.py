"""Handshakes whose time passed while their broker did not run."""

import asyncio
import socket
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.plimsoll_broker.listening import WAIT_S
from tests.plimsoll_broker.test_tls_listener import client_hello
from tests.plimsoll_broker.tls_listening import HOST, TlsHarness, tls_serving, until

from plimsoll_core import late_timers
from plimsoll_net import handshakes


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[TlsHarness]:
    async with tls_serving(tmp_path) as made:
        yield made


async def test_handshake_with_bytes_from_before_stall_continues(
    harness: TlsHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handshakes, "HANDSHAKE_S_MAX", 0.5)
    monkeypatch.setattr(late_timers, "READ_MS", 30_000)
    queue = harness.server.handshakes
    assert queue is not None
    with socket.create_connection((HOST, harness.server.port)) as held:
        await until(lambda: queue.half_open == 1)
        held.sendall(client_hello(harness))
        time.sleep(0.7)  # noqa: ASYNC251 - the process stands still, and reads nothing
        held.settimeout(WAIT_S)
        answered_with = await asyncio.to_thread(held.recv, 1)
    assert answered_with == bytes([handshakes.HANDSHAKE_RECORD]), "and not the end"
    assert harness.server.stats.closed_for[handshakes.TOO_SLOW] == 0
