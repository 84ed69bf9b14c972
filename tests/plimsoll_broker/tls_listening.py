"""A listener with TLS on loopback, its authority, and a raw client that speaks TLS to it."""

import asyncio
import os
import ssl
import subprocess
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from tests.plimsoll_broker.listening import WAIT_S, Client, Handlers

from plimsoll_broker.server.client_memory import Budgets, ClientMemory
from plimsoll_broker.server.client_quotas import Quotas
from plimsoll_broker.server.connection_limits import ListenerLimits
from plimsoll_broker.server.dispatch import Dispatch
from plimsoll_broker.server.listener import BrokerListener
from plimsoll_core.cluster.listeners import Listener
from plimsoll_net.shown_certificate import ShownCertificate
from plimsoll_operator.pki.authority import KeyPair, issue, new_authority

HOST = "127.0.0.1"
NAMES = (HOST, "localhost", "broker-0.example.test")
MIB = 1024 * 1024


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def write_pair(directory: Path, pair: KeyPair, name: str = "tls") -> None:
    """As a kubelet does: both files at once, by a link to a new directory."""
    place = directory / f"..{time.monotonic_ns()}"
    place.mkdir(parents=True)
    (place / f"{name}.crt").write_bytes(pair.certificate)
    (place / f"{name}.key").write_bytes(pair.key)
    link = directory / "..data_tmp"
    link.symlink_to(place.name)
    os.replace(link, directory / "..data")


class TlsHarness:
    """`authority` signs what the listener shows."""

    def __init__(self, directory: Path, version_min: str, limits: ListenerLimits) -> None:
        self.directory = directory
        self.authority = new_authority("test listeners", now_ms())
        self.renew()
        self.certificate = ShownCertificate(directory, "tls", version_min)
        assert self.certificate.look(), self.certificate.error
        self.handlers = Handlers()
        listener = Listener(name="tls", port=9094, tls_version_min=version_min)
        budgets = Budgets(replies=64 * MIB, requests=64 * MIB, frame=32 * MIB)
        self.memory = ClientMemory(budgets)
        self.quotas = Quotas()
        self.server = BrokerListener(
            Dispatch(self.handlers.table()),
            limits,
            self.memory,
            listener,
            self.certificate,
            self.quotas,
        )
        self.clients: list[Client] = []

    def renew(self, authority: KeyPair | None = None, names: tuple[str, ...] = NAMES) -> None:
        write_pair(self.directory, issue(authority or self.authority, names, now_ms()))

    def trust(self, **settings: ssl.TLSVersion) -> ssl.SSLContext:
        """A client's context that believes the authority."""
        context = ssl.create_default_context(cadata=self.authority.certificate.decode())
        for name, value in settings.items():
            setattr(context, name, value)
        return context

    async def connect(
        self, context: ssl.SSLContext | None = None, name: str = "localhost"
    ) -> Client:
        async with asyncio.timeout(WAIT_S):
            reader, writer = await asyncio.open_connection(
                HOST, self.server.port, ssl=context or self.trust(), server_hostname=name
            )
        client = Client(reader, writer)
        self.clients.append(client)
        return client


@asynccontextmanager
async def tls_serving(
    directory: Path, version_min: str = "1.2", limits: ListenerLimits | None = None
) -> AsyncIterator[TlsHarness]:
    made = TlsHarness(directory, version_min, limits or ListenerLimits(connections_max=20))
    await made.server.start(HOST, 0)
    try:
        yield made
    finally:
        for client in made.clients:
            client.writer.transport.abort()
        await made.server.stop()


async def until(fulfilled: Callable[[], bool]) -> None:
    """Wait for what other tasks bring about."""
    async with asyncio.timeout(WAIT_S):
        while not fulfilled():  # noqa: ASYNC110 - what is waited for sets no event
            await asyncio.sleep(0.01)


async def s_client(port: int, *options: str) -> str:
    """What `openssl s_client` prints of one connection that it closes at once."""

    def run() -> subprocess.CompletedProcess[bytes]:
        command = ["openssl", "s_client", "-connect", f"{HOST}:{port}", *options]
        return subprocess.run(command, input=b"", capture_output=True, timeout=30, check=False)

    done = await asyncio.to_thread(run)
    return (done.stdout + done.stderr).decode(errors="replace")
