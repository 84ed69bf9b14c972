"""What a secured cluster costs, in one run: rights, a storm of connections, Metadata.

Loopback only; each part ends by itself.  Quote the ratios: machines differ and are noisy.

- `rights`: two brokers in plaintext get the same requests at the same time; authorization Off and
  nothing limited, beside Enforce, 1,000 rules, and quotas of every user that nobody exceeds.
- `storm`: a producer over plaintext, alone and while 2,000 clients connect with TLS within 10 s
  to the brokers that it writes to, ask once, and stay.
- `metadata`: one broker with 500 topics and 7,000 rules under Enforce answers Metadata of all of
  them to a client with rules, in processor time: the same client again, and after a change of
  rules, when everything that is remembered of rights has to be found anew.
- `connections`: resident memory for each idle connection, and handshakes a second (`bench.tls`).

    python -m bench.secured [rights storm metadata connections] [--rounds 5]
"""

from __future__ import annotations

import argparse
import multiprocessing
import socket
import statistics
import struct
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import bench.quotas
import bench.tls
from bench import same_produces
from bench.intervals import compare
from bench.movement import LIVE, Probe, after
from bench.peers.processor_time import processor_s
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)
from tests.integration.listening import CLUSTER, HOST, asked, declared, free_ports
from tests.integration.local_cluster import LocalCluster, wait_for

from plimsoll_wire.api_versions import ApiKey
from plimsoll_wire.headers import request_frame
from plimsoll_wire.messages import decode_response, encode_request

TOPIC, PARTITIONS = "bench", 12
PROBED_S = 5.0
QUIET: dict[str, Any] = {"log_level": 0}
"""librdkafka says each time when a cluster that is stopped closes its connection."""
STORM_S = 10.0
STORM_CONNECTIONS = 2_000
DIALLERS = 8
RULES = 1_000
METADATA_TOPICS = 500
METADATA_RULES = 7_000
METADATA_VERSION = 12
CHUNK = 500
"""Topics or rules that one request makes."""
ANYBODY = "User:ANONYMOUS"
"""The principal of clients of a listener without logins."""


# --- rights ---------------------------------------------------------------------------------------


def a_rule(principal: str, operation: AclOperation, kind: ResourceType, name: str) -> AclBinding:
    allow = AclPermissionType.ALLOW
    return AclBinding(kind, name, ResourcePatternType.LITERAL, principal, "*", operation, allow)


def add_rules(admin: AdminClient, rules: list[AclBinding]) -> None:
    for first in range(0, len(rules), CHUNK):
        for made in admin.create_acls(rules[first : first + CHUNK]).values():
            made.result(60)


def create_topics(admin: AdminClient, names: list[str]) -> None:
    for first in range(0, len(names), CHUNK):
        wanted = [NewTopic(name, 1, 1) for name in names[first : first + CHUNK]]
        for made in admin.create_topics(wanted).values():
            made.result(60)


def set_authorization(cluster: LocalCluster, mode: str) -> None:
    asked(cluster, "PATCH", CLUSTER, {"spec": {"authorization": {"mode": mode}}})

    def committed() -> bool:
        records = cluster.metadata_records()
        said = [one for one in records if one["type"] == "AuthorizationConfigured"]
        return (said[-1]["authorization"]["mode"] if said else "Off") == mode

    wait_for(f"authorization {mode}", committed, 90, 0.2)


@contextmanager
def alone(directory: Path) -> Iterator[LocalCluster]:
    """Start one broker in plaintext."""
    (port,) = free_ports(1)
    listeners = [{"name": "open", "port": port}]
    directory.mkdir(exist_ok=True)
    file = declared(directory / "cluster.yaml", listeners, brokers=1)
    with LocalCluster(directory / "cluster", brokers=None, files=(file,)) as cluster:
        yield cluster


def rights(arguments: argparse.Namespace, directory: Path) -> None:
    with ExitStack() as stack:
        clusters = [stack.enter_context(alone(directory / name)) for name in ("first", "second")]
        for cluster in clusters:
            _with_rules(cluster)
        for batch in (16_384, 131_072):
            _with_and_without(clusters, arguments, batch)


def _with_rules(cluster: LocalCluster) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, **QUIET})
    create_topics(admin, [TOPIC])
    set_authorization(cluster, "Audit")
    own = [
        a_rule(ANYBODY, AclOperation.ALL, ResourceType.TOPIC, TOPIC),
        a_rule(ANYBODY, AclOperation.ALL, ResourceType.BROKER, "kafka-cluster"),
    ]
    others = [
        a_rule(f"User:u{n}", AclOperation.READ, ResourceType.TOPIC, f"t{n % 100}")
        for n in range(RULES - len(own))
    ]
    add_rules(admin, own + others)


def _with_and_without(
    clusters: list[LocalCluster], arguments: argparse.Namespace, batch: int
) -> None:
    """Measure both clusters at the same time, so that the machine affects both alike. Roles change
    each round, so that one process's memory layout counts for neither."""
    found: dict[str, list[tuple[float, float]]] = {"off": [], "enforced": []}
    requests = arguments.megabytes * 1_000_000 // batch
    with ThreadPoolExecutor(len(clusters)) as threads:
        for number in range(arguments.rounds + 1):
            sides = dict(zip(found, clusters[:: 1 if number % 2 else -1], strict=True))
            for name, cluster in sides.items():
                set_authorization(cluster, "Audit")
                bench.quotas.change(cluster, limited=name == "enforced")
                set_authorization(cluster, "Enforce" if name == "enforced" else "Off")
            under_way = {
                name: threads.submit(same_produces.timed, cluster, TOPIC, batch, requests)
                for name, cluster in sides.items()
            }
            figures = {name: one.result() for name, one in under_way.items()}
            if number:  # the first is the warm-up
                for name, figure in figures.items():
                    found[name].append(figure)
    for at, unit in enumerate(("requests a second", "us of the broker's processor for each")):
        told = {name: [one[at] for one in figures] for name, figures in found.items()}
        compare(f"rights, requests of {batch // 1024} KiB, {unit}", **told)


# --- a storm --------------------------------------------------------------------------------------


def _dial(ports: list[int], authority: str, count: int, begun: Any, over: Any) -> None:
    """Connect this many clients within STORM_S and hold them until `over`; runs in a process of
    its own."""
    dials = [bench.tls.dialler_of(port, authority) for port in ports]
    begun.wait()
    began, held = time.perf_counter(), []
    for number in range(count):
        pause = number * STORM_S / count - (time.perf_counter() - began)
        if pause > 0:
            time.sleep(pause)
        connection = dials[number % len(dials)]()
        bench.tls.ask(connection)
        held.append(connection)
    print(f"  {count} clients within {time.perf_counter() - began:.1f} s", flush=True)
    over.wait()
    for connection in held:
        connection.close()


def storm(arguments: argparse.Namespace, directory: Path) -> None:
    with bench.tls.cluster(directory) as cluster:
        plain, tls = (cluster.ready["listeners"][name] for name in bench.tls.LISTENERS)
        admin = AdminClient({"bootstrap.servers": plain, **QUIET})
        topic = NewTopic(LIVE, PARTITIONS, 3, config={"min.insync.replicas": "2"})
        for made in admin.create_topics([topic]).values():
            made.result(60)
        ports = [int(one.rpartition(":")[2]) for one in tls.split(",")]
        probe = Probe(plain, QUIET)
        probe.run("warm-up", after(PROBED_S))
        p50: dict[str, list[float]] = {"alone": [], "storm": []}
        p99: dict[str, list[float]] = {"alone": [], "storm": []}
        for _ in range(arguments.rounds):
            with stormed(ports, cluster.ready["authority"]) as begin:
                for name in ("alone", "storm"):
                    if name == "storm":
                        begin()
                    phase = probe.run(name, after(STORM_S))
                    p50[name].append(phase.p50)
                    p99[name].append(phase.p99)
        compare("storm of TLS connections, a bystander's acks=all, p50, ms", **p50)
        compare("storm of TLS connections, a bystander's acks=all, p99, ms", **p99)


@contextmanager
def stormed(ports: list[int], authority: str) -> Iterator[Callable[[], None]]:
    spawned = multiprocessing.get_context("spawn")
    begun, over = spawned.Event(), spawned.Event()
    share = STORM_CONNECTIONS // DIALLERS
    work = (ports, authority, share, begun, over)
    diallers = [spawned.Process(target=_dial, args=work) for _ in range(DIALLERS)]
    for one in diallers:
        one.start()
    try:
        yield begun.set
    finally:
        over.set()
        for one in diallers:
            one.join(60)
            if one.is_alive():
                one.kill()
    assert not any(one.exitcode for one in diallers), "a client was not let in"


# --- Metadata -------------------------------------------------------------------------------------


class Asking:
    """One connection of a client."""

    def __init__(self, cluster: LocalCluster) -> None:
        address = cluster.ready["listeners"]["open"]
        self._connection = socket.create_connection(
            (HOST, int(address.rpartition(":")[2])), timeout=60
        )
        self._stream = self._connection.makefile("rb")
        values = {
            "topics": None,
            "allow_auto_topic_creation": False,
            "include_topic_authorized_operations": False,
        }
        body = encode_request(ApiKey.METADATA, METADATA_VERSION, values)
        self._frame = request_frame(ApiKey.METADATA, METADATA_VERSION, 1, "bench", body)

    def topics(self) -> int:
        (length,) = struct.unpack(">i", self._asked())
        told = decode_response(ApiKey.METADATA, METADATA_VERSION, self._stream.read(length)[5:])
        return len(told.topics)

    def skip(self) -> None:
        (length,) = struct.unpack(">i", self._asked())
        self._stream.read(length)

    def _asked(self) -> bytes:
        self._connection.sendall(self._frame)
        return self._stream.read(4)


def metadata(arguments: argparse.Namespace, directory: Path) -> None:
    with alone(directory) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap, **QUIET})
        names = [f"t{number:03}" for number in range(METADATA_TOPICS)]
        create_topics(admin, names)
        set_authorization(cluster, "Audit")
        describe, kind = AclOperation.DESCRIBE, ResourceType.TOPIC
        own = [a_rule(ANYBODY, describe, kind, name) for name in names[::2]]
        own.append(a_rule(ANYBODY, AclOperation.ALL, ResourceType.BROKER, "kafka-cluster"))
        users = METADATA_RULES // METADATA_TOPICS
        others = [
            a_rule(f"User:u{n}", AclOperation.READ, kind, name)
            for n in range(users)
            for name in names
        ]
        add_rules(admin, (own + others)[:METADATA_RULES])
        set_authorization(cluster, "Enforce")
        client, pids = Asking(cluster), [cluster.ready["pids"]["0"]]
        assert client.topics() == METADATA_TOPICS // 2
        again, changed = [], []
        for number in range(arguments.rounds):
            before = processor_s(pids)
            for _ in range(arguments.asked):
                client.skip()
            again.append((processor_s(pids) - before) * 1000 / arguments.asked)
            rules = [a_rule(f"User:v{number}-{n}", describe, kind, "t000") for n in range(40)]
            changes = _changing(admin, pids, rules[:20], lambda: None)
            changed.append(_changing(admin, pids, rules[20:], client.skip) - changes)
    print(f"Metadata of {METADATA_TOPICS} topics, {METADATA_RULES} rules, ms of the broker:"
          f" again {spread_2(again)}, after a change of rules {spread_2(changed)}")  # fmt: skip


def _changing(
    admin: AdminClient, pids: list[int], rules: list[AclBinding], then: Callable[[], None]
) -> float:
    """Milliseconds of the broker for each rule that is added and what comes after it."""
    before = processor_s(pids)
    for rule in rules:
        add_rules(admin, [rule])
        then()
    return (processor_s(pids) - before) * 1000 / len(rules)


def spread_2(values: list[float]) -> str:
    return f"{statistics.median(values):.2f} ({min(values):.2f} - {max(values):.2f})"


def connections(arguments: argparse.Namespace, directory: Path) -> None:
    with bench.tls.cluster(directory) as cluster:
        bench.tls.memory(cluster, arguments.connections)
        bench.tls.handshakes(cluster, arguments.connections)


PARTS = {
    "rights": rights,
    "storm": storm,
    "metadata": metadata,
    "connections": connections,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], default=[])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--megabytes", type=int, default=100)
    parser.add_argument("--connections", type=int, default=500)
    parser.add_argument("--asked", type=int, default=100, help="requests for Metadata in a round")
    arguments = parser.parse_args()
    for name in arguments.parts or PARTS:
        with ExitStack() as stack:
            PARTS[name](arguments, Path(stack.enter_context(TemporaryDirectory())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
