"""A cluster of IPv6 alone, on `[::1]`: brokers, their controller, the local API server and clients;
and a broker that is told to listen everywhere, as in a pod, on both families.
"""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient
from tests.integration.listening import free_ports
from tests.integration.local_cluster import LocalCluster, consume_all, produce, wait_for

from plimsoll_core.addresses import split_address
from plimsoll_operator.controller.controller_server import ControllerServer
from plimsoll_operator.controller.inside_server import InsideServer
from plimsoll_operator.local.ports import HeldPorts

ADDRESS = "::1"
BOTH = ("127.0.0.1", ADDRESS)
TOPIC, RECORDS = "t", 300


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Closed by TLS and passwords, certificates between brokers among it."""
    (port,) = free_ports(1)
    arguments = ("--secure", "--address", ADDRESS, "--port", str(port))
    place = tmp_path_factory.mktemp("ipv6") / "cluster"
    with LocalCluster(place, arguments=arguments) as running:
        yield running


def login(cluster: LocalCluster) -> dict[str, Any]:
    """As the file for librdkafka says."""
    lines = (Path(cluster.ready["users"]) / "admin" / "librdkafka.conf").read_text().splitlines()
    config = dict(line.partition("=")[::2] for line in lines if line)
    assert config.pop("bootstrap.servers") == cluster.bootstrap
    return config


def test_every_ipv6_address_is_in_brackets(cluster: LocalCluster) -> None:
    ready = cluster.ready
    told = [*ready["bootstrap"].split(","), ready["controller"], *ready["listeners"].values()]
    told += [url.partition("://")[2].partition("/")[0] for url in ready["metrics"].values()]
    told.append(ready["api"].removeprefix("https://"))
    for address in ",".join(told).split(","):
        assert split_address(address)[0] == ADDRESS
    assert cluster.api.ask("GET", "/v1/clusters")[0] == 200
    for url in ready["metrics"].values():
        with urllib.request.urlopen(url, timeout=10) as reply:
            assert reply.status == 200


def test_ipv6_brokers_replicate_and_serve_records(cluster: LocalCluster) -> None:
    config = login(cluster)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, **config})
    new = confluent_kafka.admin.NewTopic(TOPIC, 3, 3, config={"min.insync.replicas": "3"})
    admin.create_topics([new])[TOPIC].result(30)
    values = [b"value %d" % number for number in range(RECORDS)]
    assert not produce(cluster.bootstrap, TOPIC, values, acks="all", **config).errors
    assert sum(map(len, consume_all(cluster.bootstrap, TOPIC, 3, **config).values())) == RECORDS
    hosts = {one.host for one in admin.list_topics(timeout=30).brokers.values()}
    assert hosts == {ADDRESS}
    assert all(cluster.metric(broker, "inside_plaintext_connections") == 0 for broker in range(3))


def test_broker_certificate_covers_its_ipv6_address(cluster: LocalCluster) -> None:
    context = ssl.create_default_context(cafile=cluster.ready["authority"])
    with (
        socket.create_connection(cluster.address(0), timeout=10) as plain,
        context.wrap_socket(plain, server_hostname=ADDRESS) as tls,
    ):
        assert tls.version() in ("TLSv1.2", "TLSv1.3")


@pytest.fixture
def ports() -> Iterator[list[int]]:
    """Four ports, held, that are free at `127.0.0.1` and at `::1`: another test may use a port at
    one of the two addresses alone."""
    with HeldPorts() as held, HeldPorts(ADDRESS) as of_ipv6:
        picked: list[int] = []
        while len(picked) < 4:
            port = held.pick()
            if of_ipv6.claim(port):
                picked.append(port)
        yield picked


async def test_controllers_port_takes_brokers_of_both_families(ports: list[int]) -> None:
    server = ControllerServer("::", ports[0], InsideServer())
    await server.start()
    try:
        for address in BOTH:
            _, writer = await asyncio.open_connection(address, ports[0])
            writer.close()
    finally:
        await server.close()


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_wildcard_listener_serves_both_address_families(
    tmp_path: Path, ports: list[int], host: str
) -> None:
    """Whichever of the two a pod has: scrapers and the kubelet."""
    names = ("listen", "replication", "metrics", "health")
    config = {
        "cluster_id": str(uuid.uuid4()),
        "broker_id": 0,
        "data_dir": str(tmp_path / "data"),
        "advertised": {"host": "localhost", "port": ports[0]},
        "controllers": ["[::1]:1"],
        **{name: {"host": host, "port": port} for name, port in zip(names, ports, strict=True)},
    }
    path = tmp_path / "broker.json"
    path.write_text(json.dumps(config))
    command = [sys.executable, "-m", "plimsoll_broker", "--config", str(path)]
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:

        def answers(address: str) -> bool:
            name = f"[{address}]" if ":" in address else address
            try:
                with urllib.request.urlopen(f"http://{name}:{ports[3]}/healthz", timeout=5) as got:
                    return bool(got.status == 200)
            except urllib.error.URLError:
                return False

        for address in BOTH:
            assert wait_for(f"health at {address}", lambda a=address: answers(a))
            for port in ports[2:]:  # the others open when a controller has let it in
                socket.create_connection((address, port), timeout=10).close()
    finally:
        process.terminate()
        process.wait(30)
