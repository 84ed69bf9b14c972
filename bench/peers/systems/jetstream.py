"""NATS JetStream from its Go module: three servers, a stream for each partition, files.

It acknowledges when two of three replicas have a record; Plimsoll and Kafka when all in sync have.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from bench.peers.processor_time import Processes
from bench.peers.systems.system import (
    BUILT,
    READY_S,
    ROOT,
    SERVER_PROCESS,
    Kind,
    MissingError,
    System,
)

from plimsoll_operator.local.ports import HeldPorts

SOURCES = ROOT / "bench" / "peers" / "jetstream"
SERVER, CLIENT = BUILT / "nats-server", BUILT / "jetstream-client"
BUILD_S = 600
STOP_S = 20
CONFIG = """\
server_name: n{number}
host: 127.0.0.1
port: {port}
jetstream {{ store_dir: "{store}" }}
cluster {{ name: bench, listen: "127.0.0.1:{route}", routes: [{routes}] }}
"""


class JetStream(System):
    name = "JetStream"

    def __init__(self, directory: Path, kind: Kind) -> None:
        super().__init__(directory, kind)
        self._servers: list[subprocess.Popen[bytes]] = []
        self._held = HeldPorts()
        self._ports: list[int] = []

    @classmethod
    def prepare(cls) -> None:
        go = shutil.which("go")
        if go is None:
            raise MissingError("NATS JetStream: go is not installed (https://go.dev/dl, 1.24)")
        BUILT.mkdir(parents=True, exist_ok=True)
        for built, package in ((SERVER, "github.com/nats-io/nats-server/v2"), (CLIENT, "./client")):
            if built.exists() and built == SERVER:
                continue
            command = [go, "build", "-o", str(built), package]
            try:
                subprocess.run(
                    command,
                    cwd=SOURCES,
                    capture_output=True,
                    text=True,
                    timeout=BUILD_S,
                    check=True,
                )
            except subprocess.CalledProcessError as error:
                said = error.stderr[-500:]
                raise MissingError(f"NATS JetStream: go build {package}: {said}") from error
            except subprocess.TimeoutExpired as error:
                raise MissingError(f"NATS JetStream: {error}") from error

    def start(self) -> None:
        self._ports = [self._held.pick() for _ in range(3)]
        routes = [self._held.pick() for _ in range(3)]
        self.directory.mkdir(parents=True)
        for number in range(3):
            config = self.directory / f"{number}.conf"
            config.write_text(
                CONFIG.format(
                    number=number,
                    port=self._ports[number],
                    store=self.directory / f"store-{number}",
                    route=routes[number],
                    routes=", ".join(f'"nats://127.0.0.1:{port}"' for port in routes),
                )
            )
            with (self.directory / f"{number}.log").open("wb") as log:
                self._servers.append(
                    subprocess.Popen(
                        [SERVER, "-c", config], stdout=log, stderr=log, **SERVER_PROCESS
                    )
                )

    def stop(self) -> None:
        for server in self._servers:
            server.terminate()
        for server in self._servers:
            try:
                server.wait(STOP_S)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()
        self._servers.clear()
        self._held.close()

    @property
    def bootstrap(self) -> str:
        return ",".join(f"nats://127.0.0.1:{port}" for port in self._ports)

    def processes(self) -> Processes:
        return Processes(brokers=[one.pid for one in self._servers])

    def kill(self, broker: int) -> None:
        self._servers[broker].kill()

    def client(self) -> list[str]:
        return [str(CLIENT)]

    def make_log(self, name: str, partitions: int, replicas: int) -> None:
        self._ask({"load": "make", "log": name, "partitions": partitions, "replicas": replicas})

    def first_ack(self, name: str) -> None:
        self._ask({"load": "first", "log": name})

    def _ask(self, load: dict[str, Any]) -> None:
        asked = json.dumps({"bootstrap": self.bootstrap, **load})
        done = subprocess.run(
            [CLIENT, asked], input=b"\n\n", capture_output=True, timeout=READY_S, check=False
        )
        if done.returncode:
            print(done.stderr.decode(), file=sys.stderr)
            done.check_returncode()
