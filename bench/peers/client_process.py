"""A client as a process: started, warmed up, then measured while it runs its load."""

from __future__ import annotations

import json
import selectors
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from bench.peers.processor_time import Meter, Processes, Use
from bench.peers.systems.system import ROOT, System

WARM_UP_S = 180.0
RUN_S = 240.0


class ClientFailedError(RuntimeError):
    """The client ended or stayed silent; the sentence has the end of what it said."""


def run(
    system: System,
    load: dict[str, Any],
    meanwhile: Callable[[], None] = lambda: None,
    beside: Sequence[int] = (),
) -> tuple[dict[str, float], Use]:
    """Return the client's figures, and the processor time from its first record to its last.
    `meanwhile` is called when the load has begun; `beside`: pids of other clients."""
    asked = {"bootstrap": system.bootstrap, "config": system.client_settings(), **load}
    client = subprocess.Popen(
        [*system.client(), json.dumps(asked)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, cwd=ROOT, text=True, start_new_session=True,
    )  # fmt: skip
    assert client.stdin is not None
    try:
        _line(client, WARM_UP_S)
        servers = system.processes()
        meter = Meter(
            Processes(
                brokers=servers.brokers,
                controllers=servers.controllers,
                clients=[client.pid, *beside],
            )
        )
        print(file=client.stdin, flush=True)
        meanwhile()
        line = _line(client, RUN_S)
        used = meter.used()
        client.stdin.close()
        client.wait(10)
    finally:
        client.kill()
        client.wait()
        for stream in (client.stdin, client.stdout, client.stderr):
            assert stream is not None
            stream.close()
    return json.loads(line), used


@contextmanager
def consumer_without_sessions(system: System, log: str, partitions: int) -> Iterator[int]:
    """Start it, wait until it has fetched, and return its pid."""
    words = [system.bootstrap, log, str(partitions)]
    consumer = subprocess.Popen(
        [sys.executable, "-m", "bench.peers.clients.sessionless_consumer", *words],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT, text=True,
        start_new_session=True,
    )  # fmt: skip
    with consumer:
        try:
            _line(consumer, WARM_UP_S)
            yield consumer.pid
        finally:
            consumer.kill()


def _line(client: subprocess.Popen[str], timeout_s: float) -> str:
    assert client.stdout is not None
    assert client.stderr is not None
    with selectors.DefaultSelector() as selector:
        selector.register(client.stdout, selectors.EVENT_READ)
        line = client.stdout.readline() if selector.select(timeout_s) else ""
    if not line:
        client.kill()
        raise ClientFailedError(f"no answer of the client: {client.stderr.read()[-2000:]}")
    return line
