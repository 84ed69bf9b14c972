"""Local clusters with declared listeners, and what their clients need."""

from __future__ import annotations

import atexit
import base64
import itertools
import random
import socket
import ssl
import threading
import urllib.error
from pathlib import Path
from typing import Any

from tests.integration.declared import log_cluster
from tests.integration.local_cluster import Acked, LocalCluster, a_producer, wait_for

from plimsoll_operator.local.ports import HeldPorts

HOST = "127.0.0.1"
BROKERS_MAX = 4
"""Each broker adds its number to the port of a listener."""
PORTS = range(10_000, 20_000, 2 * BROKERS_MAX)
"""None that a local cluster picks, nor the kernel for connections."""
MERGE = "application/merge-patch+json"
OURS = "/apis/plimsoll.dev/v1alpha1/namespaces/default"
"""Where the API server has the objects of our kinds."""
CLUSTER = f"{OURS}/logclusters/main"
CORE = "/api/v1/namespaces/default"
_HELD = HeldPorts()
atexit.register(_HELD.close)
LOAD_PAUSE_S = 0.025
"""Between two writes, each of which costs a cluster some milliseconds of a processor."""


def free_ports(count: int) -> list[int]:
    """So many ports, behind each of which some more are free too; this process holds them all until
    it ends, so that no other has them before a broker listens, or while it is down."""
    found: list[int] = []
    while len(found) < count:
        first = random.choice(PORTS)
        if all(map(_HELD.claim, range(first, first + BROKERS_MAX))):
            found.append(first)
    return found


def declared(path: Path, listeners: list[dict[str, Any]], **spec: Any) -> Path:
    path.write_text(log_cluster(listeners=listeners, **spec))
    return path


def tls_client(cluster: LocalCluster) -> dict[str, str]:
    """What librdkafka needs for a listener that the cluster's own authority signs for."""
    return {"security.protocol": "SSL", "ssl.ca.location": cluster.ready["authority"]}


def asked(cluster: LocalCluster, method: str, path: str, body: Any = None) -> Any:
    """One request to the local API server; the answer's body."""
    try:
        return cluster.api.ask(method, path, body, media=MERGE)[1]
    except urllib.error.HTTPError as error:
        raise AssertionError(error.read().decode()) from error


def touch(cluster: LocalCluster, value: str) -> None:
    """Have the operator look at the LogCluster now, and not within a minute."""
    body = {"metadata": {"annotations": {"example.test/looked-at": value}}}
    asked(cluster, "PATCH", CLUSTER, body)


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def shown_certificate(port: int, authorities: str) -> bytes:
    """What a listener shows a new client that trusts `authorities` (PEM), as DER; raises
    ssl.SSLError when the client does not believe it."""
    context = ssl.create_default_context(cadata=authorities)
    with (
        socket.create_connection((HOST, port), timeout=10) as plain,
        context.wrap_socket(plain, server_hostname=HOST) as tls,
    ):
        found = tls.getpeercert(binary_form=True)
    assert found is not None
    return found


class Load:
    """One idempotent producer over TLS that writes until it is told to stop."""

    loads = itertools.count()

    def __init__(self, servers: str, *, topic: str = "t", **config: Any) -> None:
        self.acked = Acked()
        # No two of them write the same.
        self.name = b"load %d of " % next(self.loads)
        self._topic = topic
        self._producer = a_producer(servers, **config)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        assert self._producer.flush(60) == 0

    def _run(self) -> None:
        number = 0
        while not self._stop.is_set():
            value = self.name + b"%d" % number
            self._producer.produce(self._topic, value=value, on_delivery=self.acked.delivered)
            self._producer.poll(0)
            self._stop.wait(LOAD_PAUSE_S)
            number += 1

    def give_up(self) -> None:
        """What is not acknowledged by now never will be."""
        self._stop.set()
        self._thread.join()
        self._producer.purge()

    def goes_on(self) -> None:
        """More is acknowledged than was when it was asked."""
        before = len(self.acked.records)
        wait_for("more acks", lambda: len(self.acked.records) > before + 20)
