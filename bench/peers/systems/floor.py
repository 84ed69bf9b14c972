"""The floors: what replicating a produce costs at least, in C and in thin Python."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

from bench.peers.processor_time import Processes
from bench.peers.systems.system import (
    BUILT,
    READY_S,
    ROOT,
    SERVER_PROCESS,
    KafkaSystem,
    Kind,
    MissingError,
)

from plimsoll_operator.local.ports import HeldPorts

SOURCE = ROOT / "bench" / "peers" / "floor" / "floor.c"
BUILT_FLOOR = BUILT / "floor"


class Floor(KafkaSystem):
    """Nodes that take any topic for one of twelve partitions on all of them."""

    command: tuple[str, ...]

    def __init__(self, directory: Path, kind: Kind) -> None:
        super().__init__(directory, kind)
        self._nodes: list[subprocess.Popen[bytes]] = []
        self._port = 0

    @classmethod
    def needed(cls, kind: Kind) -> Kind:
        return kind

    def start(self) -> None:
        self.directory.mkdir(parents=True)
        nodes = self.kind.replicas
        self._port, peers = consecutive(nodes), consecutive(nodes)
        for number in range(nodes):
            with (self.directory / f"{number}.out").open("wb") as out:
                words = [*self.command, str(number), str(nodes), str(self._port), str(peers)]
                words.append(str(self.directory))
                node = subprocess.Popen(words, stdout=out, stderr=out, cwd=ROOT, **SERVER_PROCESS)
                self._nodes.append(node)
        until = time.monotonic() + READY_S
        for number in range(nodes):
            while not listens(self._port + number):
                if time.monotonic() > until or self._nodes[number].poll() is not None:
                    raise TimeoutError(f"{self.name}: node {number} does not listen")
                time.sleep(0.02)

    def stop(self) -> None:
        for node in self._nodes:
            node.kill()
            node.wait()
        self._nodes.clear()

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{self._port + one}" for one in range(self.kind.replicas))

    def processes(self) -> Processes:
        return Processes(brokers=[one.pid for one in self._nodes])

    def kill(self, broker: int) -> None:
        self._nodes[broker].kill()

    def make_log(self, name: str, partitions: int, replicas: int) -> None:
        """It has twelve partitions already."""


class PythonFloor(Floor):
    name = "Python floor"
    command = (sys.executable, "-m", "bench.peers.floor.thin_floor")


class CFloor(Floor):
    name = "C floor"
    command = (str(BUILT_FLOOR),)

    @classmethod
    def prepare(cls) -> None:
        compiler = shutil.which("cc") or shutil.which("gcc")
        if compiler is None:
            raise MissingError("the floor in C: no compiler is installed (Debian: gcc, libc6-dev)")
        BUILT.mkdir(parents=True, exist_ok=True)
        words = [compiler, "-O2", "-msse4.2", str(SOURCE), "-o", str(BUILT_FLOOR)]
        done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
        if done.returncode:
            raise MissingError(f"the floor in C does not compile here: {done.stderr[-500:]}")


def consecutive(count: int) -> int:
    """Return the first of some free ports."""
    for _ in range(1_000):
        with HeldPorts() as held:
            first = held.pick()
            if all(held.claim(first + one) for one in range(1, count)):
                return first
    raise OSError("no consecutive ports are free")


def listens(port: int) -> bool:
    with socket.socket() as tried:
        tried.settimeout(1)
        return tried.connect_ex(("127.0.0.1", port)) == 0
