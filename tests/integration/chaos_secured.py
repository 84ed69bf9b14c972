"""The closed cluster of chaos: `make chaos` without OPEN=1.

`plimsoll local --secure` with a user that may write to both topics, and one that may read `plain`
as a member of the group; both have quotas that what they catch up with after an outage may reach.
Beside them `stranger` logs in, has no right, and tries to write all the time: each record of his
that is acknowledged is a fault.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
from confluent_kafka.admin import AdminClient
from tests.integration.chaos_clients.frame import COMPACTED, GROUP, PLAIN
from tests.integration.chaos_clients.logins import librdkafka_login
from tests.integration.listening import free_ports
from tests.integration.local_cluster import LocalCluster, wait_for

USERS = ("admin", "writer", "reader", "stranger")
WRITES = {"producerBytesPerSecond": "256Ki", "requestPercentage": 100}
READS = {"consumerBytesPerSecond": "1Mi", "requestPercentage": 100}
REFUSED_MS = 2_000
BETWEEN_S = 0.5


def objects_of_users() -> list[str]:
    writes = [_may(("Topic", topic), "Write") for topic in (PLAIN, COMPACTED)]
    reads = [_may(("Topic", PLAIN), "Read"), _may(("Group", GROUP), "Read")]
    return [
        _user("writer", writes, WRITES),
        _user("reader", reads, READS),
        _user("stranger", [], {}),
    ]


def _may(resource: tuple[str, str], operation: str) -> dict[str, Any]:
    kind, name = resource
    return {"resource": {"type": kind, "name": name}, "operations": [operation]}


def _user(name: str, acls: list[dict[str, Any]], quotas: dict[str, Any]) -> str:
    spec = {
        "clusterRef": {"name": "main"},
        "authentication": {"scram": {}},
        "acls": acls,
        **({"quotas": quotas} if quotas else {}),
    }
    head = {"apiVersion": "plimsoll.dev/v1alpha1", "kind": "User", "metadata": {"name": name}}
    return json.dumps({**head, "spec": spec}) + "\n"


class SecuredCluster(LocalCluster):
    """Whose administrator logs in as `admin`."""

    def __init__(self, directory: Path, objects: Path) -> None:
        (port,) = free_ports(1)
        arguments = ("--secure", "--port", str(port))
        super().__init__(
            directory, brokers=None, files=[objects], arguments=arguments, forked=False
        )

    def __enter__(self) -> SecuredCluster:
        self.start()
        for user in USERS:
            wait_for(f"the login of {user}", (self.folder(user) / "password").exists)
        return self

    def folder(self, user: str) -> Path:
        """Of the user's login."""
        return self.directory / "users" / user

    def login(self, user: str) -> dict[str, Any]:
        return librdkafka_login(self.folder(user))

    def admin(self) -> AdminClient:
        config = {"bootstrap.servers": self.bootstrap, "socket.timeout.ms": 5000, "log_level": 0}
        return AdminClient({**config, **self.login("admin")})


@contextlib.contextmanager
def a_stranger(cluster: LocalCluster) -> Iterator[list[str]]:
    """Tries to write meanwhile, if the cluster is closed; the list says what was let through."""
    wrong: list[str] = []
    if not isinstance(cluster, SecuredCluster):
        yield wrong
        return
    over = threading.Event()
    config = {"bootstrap.servers": cluster.bootstrap, "log_level": 0, **cluster.login("stranger")}
    producer = confluent_kafka.Producer({**config, "message.timeout.ms": REFUSED_MS})

    def told(error: confluent_kafka.KafkaError | None, _: confluent_kafka.Message) -> None:
        if error is None:
            wrong.append("a record of a stranger was acknowledged")

    def tries() -> None:
        while not over.wait(BETWEEN_S):
            # Raises what metadata said of the topic before.
            with contextlib.suppress(confluent_kafka.KafkaException):
                producer.produce(PLAIN, b"0:by a stranger", on_delivery=told)
            producer.poll(0)
        producer.flush(2 * REFUSED_MS / 1000)

    thread = threading.Thread(target=tries, name="stranger", daemon=True)
    thread.start()
    try:
        yield wrong
    finally:
        over.set()
        thread.join()
