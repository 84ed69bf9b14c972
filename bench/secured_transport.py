"""The cost of TLS on every port: clusters and producers of `bench.secured transport`."""

from __future__ import annotations

import argparse
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from bench.before_after import make_lines, spread
from bench.intervals import ratios
from bench.movement import LIVE, Probe, after
from bench.side_by_side import PARTITIONS, TOPIC
from confluent_kafka.admin import AdminClient, NewTopic
from tests.conformance.apache_kafka import ApacheKafka
from tests.conformance.kafka_jars import kafka_jars
from tests.integration.listening import HOST, declared, free_ports, tls_client
from tests.integration.local_cluster import LocalCluster, wait_for
from tests.integration.test_inside import inside

from plimsoll_operator.pki.authority import issue, new_authority

PROBED_S = 5.0
QUIET: dict[str, Any] = {"log_level": 0}
"""librdkafka says each time when a cluster that is stopped closes its connection."""


def processor_s(pids: list[int]) -> float:
    return sum(sum(psutil.Process(pid).cpu_times()[:2]) for pid in pids)


@dataclass(frozen=True, slots=True)
class Side:
    """One cluster.  `config`: what librdkafka needs beside the addresses."""

    name: str
    bootstrap: str
    pids: list[int]
    config: dict[str, Any] = field(default_factory=dict)

    def admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap, **QUIET, **self.config})

    def write(self, arguments: argparse.Namespace, directory: Path) -> tuple[float, float]:
        """MB/s, and the brokers' milliseconds for each MB."""
        command = COMMANDS[arguments.client](self, arguments, directory)
        before, began = processor_s(self.pids), time.perf_counter()
        done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=300)
        rate = arguments.megabytes / (time.perf_counter() - began)
        used_ms = (processor_s(self.pids) - before) * 1000
        # Java's own figure leaves its start out.
        told = re.findall(r"\(([\d.]+) MB/sec\)", done.stdout)
        if told:
            rate = float(told[-1]) * 2**20 / 1e6
        return rate, used_ms / arguments.megabytes


def kcat(side: Side, arguments: argparse.Namespace, directory: Path) -> list[str]:
    lines = directory / "lines"
    if not lines.exists():
        make_lines(lines, arguments.megabytes, arguments.record_bytes)
    command = ["kcat", "-P", "-b", side.bootstrap, "-t", TOPIC, "-l", str(lines)]
    wanted = {
        "acks": "all",
        "batch.size": "131072",
        "linger.ms": "5",
        "queue.buffering.max.kbytes": "131072",
        "message.timeout.ms": "120000",
        **side.config,
    }
    for key, value in wanted.items():
        command += ["-X", f"{key}={value}"]
    return command


def java(side: Side, arguments: argparse.Namespace, directory: Path) -> list[str]:
    properties = directory / f"{side.name}.properties"
    wanted = {
        "bootstrap.servers": side.bootstrap,
        "acks": "all",
        "batch.size": "131072",
        "linger.ms": "5",
        "buffer.memory": "134217728",
    }
    if side.config:
        wanted |= {
            "security.protocol": "SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": side.config["ssl.ca.location"],
        }
    properties.write_text("".join(f"{key}={value}\n" for key, value in wanted.items()))
    return kafka_jars().command(
        "org.apache.kafka.tools.ProducerPerformance",
        "--topic", TOPIC, "--throughput", "-1", "--record-size", str(arguments.record_bytes),
        "--num-records", str(arguments.megabytes * 1_000_000 // arguments.record_bytes),
        "--producer.config", str(properties), heap_mb=512, short_lived=False,
    )  # fmt: skip


COMMANDS = {"java": java, "kcat": kcat}


@contextmanager
def plimsoll_sides(directory: Path) -> Iterator[dict[str, Side]]:
    """One cluster in plaintext, one with TLS on every port."""
    (port,) = free_ports(1)
    (directory / "tls").mkdir()
    spec = {"certificates": {"internal": {"mode": "Required"}}}
    file = declared(directory / "tls" / "cluster.yaml", [{"name": "tls", "port": port, "tls": {}}],
                    **spec)  # fmt: skip
    with (
        LocalCluster(directory / "plain" / "cluster") as plain,
        LocalCluster(directory / "tls" / "cluster", brokers=None, files=(file,)) as tls,
    ):
        wait_for("TLS inside", lambda: inside(tls)["mode"] == "Required", 90, 0.2)
        yield {
            "plain": Side("plain", plain.bootstrap, plain.broker_pids),
            "TLS": Side("TLS", tls.ready["listeners"]["tls"], tls.broker_pids, tls_client(tls)),
        }


def kafka_certificates(directory: Path) -> tuple[dict[str, str], dict[str, str]]:
    """Properties of Kafka's nodes that encrypt all they say, and of their clients."""
    now_ms = time.time_ns() // 1_000_000
    authority = new_authority("bench", now_ms)
    shown = issue(authority, [HOST], now_ms)
    trusted, pair = directory / "ca.pem", directory / "node.pem"
    trusted.write_bytes(authority.certificate)
    pair.write_bytes(shown.key + shown.certificate)
    nodes = {
        "listener.security.protocol.map": "PLAINTEXT:SSL,CONTROLLER:SSL",
        "inter.broker.listener.name": "PLAINTEXT",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(pair),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(trusted),
    }
    return nodes, {"security.protocol": "SSL", "ssl.ca.location": str(trusted)}


@contextmanager
def kafka_sides(directory: Path) -> Iterator[dict[str, Side]]:
    nodes, client = kafka_certificates(directory)
    with (
        ApacheKafka(directory / "plain", brokers=3) as plain,
        ApacheKafka(directory / "tls", brokers=3, configs=nodes, client=client) as tls,
    ):
        yield {
            "plain": Side("plain", plain.bootstrap, [one.pid for one in plain.processes.values()]),
            "TLS": Side("TLS", tls.bootstrap, [one.pid for one in tls.processes.values()], client),
        }


SYSTEMS = {"plimsoll": plimsoll_sides, "kafka": kafka_sides}


def transport(arguments: argparse.Namespace, directory: Path) -> None:
    for system, sides_of in SYSTEMS.items():
        place = directory / system
        place.mkdir()
        with sides_of(place) as sides:
            _compare(system, sides, place, arguments)


def _compare(
    system: str, sides: dict[str, Side], place: Path, arguments: argparse.Namespace
) -> None:
    topics = [
        NewTopic(name, PARTITIONS, 3, config={"min.insync.replicas": "2"}) for name in (TOPIC, LIVE)
    ]
    for side in sides.values():
        admin = side.admin()
        for made in admin.create_topics(topics).values():
            made.result(60)
    probes = {name: Probe(side.bootstrap, {**QUIET, **side.config}) for name, side in sides.items()}
    found: dict[str, list[tuple[float, float, float, float]]] = {name: [] for name in sides}
    for number in range(arguments.rounds + 1):
        for name, side in list(sides.items())[:: 1 if number % 2 else -1]:
            figure = side.write(arguments, place)
            phase = probes[name].run(name, after(PROBED_S))
            if number:  # the first is the warm-up
                found[name].append((*figure, phase.p50, phase.p99))
    units = ("MB/s", "ms of the brokers' processors for each MB", "p50, ms", "p99, ms")
    for at, unit in enumerate(units):
        compare(
            f"{system}, acks=all, {arguments.client}, {unit}",
            **{name: [one[at] for one in figures] for name, figures in found.items()},
        )


def compare(what: str, **sides: list[float]) -> None:
    """Both sides, and the second to the first, round by round."""
    (first, before), (second, later) = sides.items()
    told = f"{what}: {first} {spread(before)}, {second} {spread(later)}, {ratios(before, later)}"
    print(told, flush=True)
