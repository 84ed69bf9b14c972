"""What TLS for clients costs: the same brokers over a plaintext listener and over one with TLS.

Three brokers on loopback with two listeners; one topic (RF 3, min ISR 2).  kcat writes with
acks=all and reads back, over one listener and the other in turns: MB/s and the brokers' processor
time for each megabyte.  Then so many clients connect to broker 0, plaintext and with TLS, and stay:
what its resident memory grows by for each, idle after one request.  Last, how many handshakes a
second one client gets through, one after another.

    python -m bench.tls --megabytes 100 --rounds 5 --connections 500
"""

import argparse
import socket
import ssl
import statistics
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil
from bench.intervals import spread
from bench.lines import make_lines
from confluent_kafka.admin import AdminClient, NewTopic
from tests.integration.listening import HOST, declared, free_ports, tls_client
from tests.integration.local_cluster import LocalCluster

TOPIC = "bench"
LISTENERS = ("plain", "tls")
API_VERSIONS = struct.pack(">ihhih", 10, 18, 0, 1, -1)
SETTLED_S = 2.0


@contextmanager
def cluster(directory: Path) -> Iterator[LocalCluster]:
    plain, tls = free_ports(2)
    listeners = [
        {"name": "plain", "port": plain, "limits": {"connections": 100_000}},
        {"name": "tls", "port": tls, "tls": {}, "limits": {"connections": 100_000}},
    ]
    file = declared(directory / "cluster.yaml", listeners)
    with LocalCluster(directory / "cluster", brokers=None, files=(file,)) as running:
        admin = AdminClient({"bootstrap.servers": running.ready["listeners"]["plain"]})
        topic = NewTopic(TOPIC, 6, 3, config={"min.insync.replicas": "2"})
        for future in admin.create_topics([topic]).values():
            future.result(30)
        running.wait_isr(TOPIC, 3)
        yield running


class Kcat:
    """kcat over one listener, and what it costs the brokers."""

    def __init__(self, running: LocalCluster, listener: str) -> None:
        config = tls_client(running) if listener == "tls" else {}
        self._command = ["kcat", "-b", running.ready["listeners"][listener], "-t", TOPIC]
        for key, value in config.items():
            self._command += ["-X", f"{key}={value}"]
        self._brokers = [psutil.Process(running.ready["pids"][str(b)]) for b in range(3)]

    def _timed(self, megabytes: float, *arguments: str) -> tuple[float, float]:
        """MB/s, and the brokers' milliseconds for each MB."""

        def used() -> float:
            return sum(sum(broker.cpu_times()[:2]) for broker in self._brokers)

        before, began = used(), time.perf_counter()
        subprocess.run(
            [*self._command, *arguments], check=True, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, timeout=600,
        )  # fmt: skip
        seconds = time.perf_counter() - began
        return megabytes / seconds, (used() - before) * 1000 / megabytes

    def write(self, lines: Path, megabytes: int) -> tuple[float, float]:
        return self._timed(
            megabytes, "-P", "-l", str(lines), "-X", "acks=all", "-X", "batch.size=131072",
            "-X", "linger.ms=5", "-X", "queue.buffering.max.kbytes=131072",
        )  # fmt: skip

    def read(self, megabytes: int, records: int) -> tuple[float, float]:
        return self._timed(
            megabytes, "-C", "-o", "beginning", "-c", str(records), "-q",
            "-X", "queued.max.messages.kbytes=131072",
        )  # fmt: skip


def throughput(running: LocalCluster, arguments: argparse.Namespace, lines: Path) -> None:
    clients = {listener: Kcat(running, listener) for listener in LISTENERS}
    records = arguments.megabytes * 1_000_000 // arguments.record_bytes
    found: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for number in range(arguments.rounds + 1):
        order = LISTENERS if number % 2 else LISTENERS[::-1]
        for listener in order:
            figures = {
                "write acks=all": clients[listener].write(lines, arguments.megabytes),
                "read": clients[listener].read(arguments.megabytes, records),
            }
            for what, figure in figures.items():
                if number:  # the first is the warm-up
                    found.setdefault((what, listener), []).append(figure)
    for what in ("write acks=all", "read"):
        for at, unit in enumerate(("MB/s", "ms of the brokers' processors for each MB")):
            plain, tls = ([one[at] for one in found[what, listener]] for listener in LISTENERS)
            ratio = statistics.median(tls) / statistics.median(plain)
            print(f"{what}, {unit}: plain {spread(plain)}, TLS {spread(tls)}, ratio {ratio:.2f}")


def dialler(running: LocalCluster, listener: str) -> Callable[[], socket.socket]:
    """Opens one connection to broker 0."""
    port = int(running.ready["listeners"][listener].partition(",")[0].rpartition(":")[2])
    return dialler_of(port, running.ready["authority"] if listener == "tls" else None)


def dialler_of(port: int, authority: str | None) -> Callable[[], socket.socket]:
    """`authority` is the file of authorities that the client trusts, or None for plaintext."""
    context = None if authority is None else ssl.create_default_context(cafile=authority)

    def dial() -> socket.socket:
        plain = socket.create_connection((HOST, port), timeout=30)
        return plain if context is None else context.wrap_socket(plain, server_hostname=HOST)

    return dial


def ask(connection: socket.socket) -> None:
    """One request and its answer."""
    connection.sendall(API_VERSIONS)
    (size,) = struct.unpack(">i", _exactly(connection, 4))
    _exactly(connection, size)


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = connection.recv(size - len(data))
        assert more, "the broker closed"
        data += more
    return data


def memory(running: LocalCluster, connections: int) -> None:
    broker = psutil.Process(running.ready["pids"]["0"])
    for listener in LISTENERS:
        dial = dialler(running, listener)
        before = broker.memory_info().rss
        held = []
        for _ in range(connections):
            held.append(dial())
            ask(held[-1])
        time.sleep(SETTLED_S)
        grown = (broker.memory_info().rss - before) / connections / 1024
        print(f"{connections} idle connections, {listener}: {grown:.1f} KiB of broker 0 for each")
        for one in held:
            one.close()
        time.sleep(SETTLED_S)


def handshakes(running: LocalCluster, count: int) -> None:
    dial = dialler(running, "tls")
    broker = psutil.Process(running.ready["pids"]["0"])
    before, began = sum(broker.cpu_times()[:2]), time.perf_counter()
    for _ in range(count):
        dial().close()
    seconds = time.perf_counter() - began
    used_ms = (sum(broker.cpu_times()[:2]) - before) * 1000 / count
    print(f"handshakes one after another: {count / seconds:.0f}/s, {used_ms:.2f} ms of broker 0")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=100)
    parser.add_argument("--record-bytes", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--connections", type=int, default=500)
    parser.add_argument("--handshakes", type=int, default=500)
    arguments = parser.parse_args()
    with TemporaryDirectory() as temporary:
        lines = Path(temporary) / "lines"
        make_lines(lines, arguments.megabytes, arguments.record_bytes)
        with cluster(Path(temporary)) as running:
            throughput(running, arguments, lines)
            memory(running, arguments.connections)
            handshakes(running, arguments.handshakes)
    return 0


if __name__ == "__main__":
    sys.exit(main())
