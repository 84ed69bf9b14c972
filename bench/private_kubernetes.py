"""An API server and an etcd of a benchmark's own, in a directory that goes with them.

The programs are those of the node (`dev/node.sh up` installs them). Every request is allowed, and
etcd syncs each write to the disk, as in a cluster. Used by `take_over` and `sizes`.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import subprocess
import tempfile
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.request import urlopen

import yaml
from kubernetes.aio.client.configuration import Configuration

from plimsoll_operator.kube.errors import ApiError
from plimsoll_operator.kube.kube_api import HttpRequest, KubeApi, call
from plimsoll_operator.kube.official_transport import Access, OfficialTransport
from plimsoll_operator.kube.resources import CRDS

BIN = Path(os.environ.get("PLIMSOLL_NODE_ROOT", "/var/tmp/plimsoll-node")) / "bin"
CRD_FILES = sorted((Path(__file__).parents[1] / "crds").glob("*.yaml"))
TOKEN = "bench"
WRITES = ("POST", "PUT", "PATCH", "APPLY", "DELETE")
READY_S = 180
POLL_S = 0.2


class PrivateKubernetes:
    """The running programs, and the access to them."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.etcd_port, peers, self.port = free_ports(3)
        self._running: list[subprocess.Popen[bytes]] = []
        etcd, peer = f"http://127.0.0.1:{self.etcd_port}", f"http://127.0.0.1:{peers}"
        key = directory / "accounts.key"
        (directory / "tokens").write_text(f"{TOKEN},bench,bench,system:masters\n")
        _run("openssl", "genrsa", "-out", str(key), "2048")
        stored, accounts = directory / "etcd", f"--service-account-key-file={key}"
        signing = "--service-account-issuer=https://kubernetes.default.svc"
        self._commands = (
            f"etcd --data-dir {stored} --log-level warn --quota-backend-bytes {8 << 30}"
            f" --listen-client-urls {etcd} --advertise-client-urls {etcd}"
            f" --listen-peer-urls {peer} --initial-advertise-peer-urls {peer}"
            f" --initial-cluster default={peer}",
            f"kube-apiserver --etcd-servers={etcd} --bind-address=127.0.0.1"
            f" --secure-port={self.port} --cert-dir={directory / 'certificates'}"
            f" --authorization-mode=AlwaysAllow --token-auth-file={directory / 'tokens'}"
            f" {accounts} {signing} --service-account-signing-key-file={key}"
            " --service-cluster-ip-range=10.0.0.0/24",
        )

    def start(self) -> None:
        for command in (one.split() for one in self._commands):
            with (self.directory / f"{command[0]}.log").open("wb") as log:
                program = str(BIN / command[0])
                self._running.append(
                    subprocess.Popen((program, *command[1:]), stdout=log, stderr=log)
                )

    def stop(self) -> None:
        for process in reversed(self._running):
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def transport(self, connections: int = 16) -> OfficialTransport:
        return OfficialTransport(self.access(), connections=connections)

    def access(self) -> Access:
        configuration = Configuration(host=f"https://127.0.0.1:{self.port}")
        configuration.verify_ssl = False
        configuration.api_key["BearerToken"] = TOKEN
        configuration.api_key_prefix["BearerToken"] = "Bearer"
        return Access(configuration)

    def etcd_metrics(self) -> dict[str, float]:
        """Return etcd's own counters and gauges without labels."""
        with urlopen(f"http://127.0.0.1:{self.etcd_port}/metrics") as answer:
            lines = answer.read().decode().splitlines()
        rows = (line.split() for line in lines if line[:1] != "#" and "{" not in line)
        return {row[0]: float(row[1]) for row in rows if len(row) == 2}

    async def writes(self) -> Counter[str]:
        """Return how often the API server was asked to write, by resource."""
        transport, found = self.transport(), Counter[str]()
        try:
            answer = await transport.send(HttpRequest(method="GET", path="/metrics"))
        finally:
            await transport.close()
        for line in answer.body.decode().splitlines():
            if line.startswith("apiserver_request_total{"):
                labels = dict(re.findall(r'(\w+)="([^"]*)"', line))
                if labels["verb"] in WRITES:
                    found[labels["resource"]] += int(float(line.rpartition(" ")[2]))
        return found

    async def ready(self) -> None:
        """Wait until the API server serves, then apply the product's CRDs."""
        transport = self.transport()
        kube = KubeApi(transport)
        try:
            async with asyncio.timeout(READY_S):
                await _until(transport, "/readyz")
                for path in CRD_FILES:
                    await kube.apply(CRDS, yaml.safe_load(path.read_text()))
                for path in CRD_FILES:
                    spec = yaml.safe_load(path.read_text())["spec"]
                    served = f"{spec['group']}/{spec['versions'][0]['name']}"
                    await _until(transport, f"/apis/{served}/{spec['names']['plural']}")
        finally:
            await transport.close()


async def _until(transport: OfficialTransport, path: str) -> None:
    while True:
        try:
            if path == "/readyz":
                if (await transport.send(HttpRequest(method="GET", path=path))).status == 200:
                    return
            else:
                await call(transport, HttpRequest(method="GET", path=path))
                return
        except ApiError:
            pass
        await asyncio.sleep(POLL_S)


@asynccontextmanager
async def private_kubernetes() -> AsyncIterator[PrivateKubernetes]:
    """Run both programs; stop them and delete what they stored at the end."""
    with tempfile.TemporaryDirectory(prefix="plimsoll-bench-") as name:
        found = PrivateKubernetes(Path(name))
        try:
            found.start()
            await found.ready()
            yield found
        finally:
            found.stop()


def free_ports(count: int) -> list[int]:
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports: list[int] = [one.getsockname()[1] for one in held]
    for one in held:
        one.close()
    return ports


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)
