"""A broker's listeners for clients: opened, closed and registered as the metadata changes."""

import asyncio
import ssl
from pathlib import Path
from uuid import UUID

import pytest
from msgspec.structs import replace
from tests.integration.listening import free_ports
from tests.plimsoll_broker.listening import Client, Handlers
from tests.plimsoll_broker.tls_listening import HOST, now_ms, write_pair

from plimsoll_broker.config import Address, BrokerConfig
from plimsoll_broker.node.client_listeners import TLS_CONNECTIONS_MAX, ClientListeners
from plimsoll_broker.server.client_memory import ClientMemory, budgets_of
from plimsoll_broker.server.connection_limits import ListenerLimits
from plimsoll_broker.server.dispatch import Dispatch
from plimsoll_core.cluster.listeners import Advertised, Listener
from plimsoll_core.cluster.model import ClusterImage, Endpoint
from plimsoll_core.ids import BrokerId
from plimsoll_operator.pki.authority import issue, new_authority
from plimsoll_wire.api_versions import ApiKey

CLUSTER = UUID(int=1)


class Broker:
    """The listeners of one broker, and what was registered."""

    def __init__(self, directory: Path, files: int | None = None) -> None:
        self.implicit, self.plain, self.tls = free_ports(3)
        self.pki = directory / "pki"
        self.pki.mkdir()
        config = BrokerConfig(
            cluster_id=CLUSTER,
            broker_id=0,
            data_dir=str(directory),
            listen=Address(host=HOST, port=self.implicit),
            advertised=Address(host="b0", port=self.implicit),
            replication=Address(host=HOST, port=0),
            controllers=("c:1",),
            certificates=str(self.pki),
            open_files_max=files,
        )
        self.handlers = Handlers()
        memory = ClientMemory(budgets_of(None))
        dispatch = Dispatch(self.handlers.table())
        self.listeners = ClientListeners(config, dispatch, ListenerLimits(), memory)
        self.registered: list[tuple[Endpoint, ...]] = []
        self.image = ClusterImage(cluster_id=CLUSTER)
        self.refuses = False

    async def _register(self, endpoints: tuple[Endpoint, ...]) -> bool:
        self.registered.append(endpoints)
        return not self.refuses

    async def settle(self, *listeners: Listener) -> None:
        self.image = replace(self.image, listeners=listeners)
        await self.look()

    async def look(self) -> None:
        await self.listeners.settle(self.image)
        await self.listeners.register(self._register)

    def certify(self, name: str = "tls") -> None:
        authority = new_authority("test", now_ms())
        write_pair(self.pki, issue(authority, (HOST,), now_ms()), name)

    @property
    def open(self) -> list[str]:
        return sorted(self.listeners.servers)

    @property
    def shown(self) -> dict[str, int]:
        return {one.name: one.port for one in self.registered[-1]}


@pytest.fixture
async def broker(tmp_path: Path):
    made = Broker(tmp_path)
    yield made
    await made.listeners.stop()


def plain(broker: Broker, name: str = "internal", **more) -> Listener:
    return Listener(name=name, port=broker.plain, **more)


def tls(broker: Broker, **more) -> Listener:
    return Listener(name="tls", port=broker.tls, tls_version_min="1.2", **more)


async def connected(port: int) -> Client:
    return Client(*await asyncio.open_connection(HOST, port))


async def answered(client: Client) -> bool:
    client.send(ApiKey.METADATA, 1, b"x")
    return await client.reply() == (1, b"at once x")


async def test_configured_listener_is_open_without_declared_ones(
    broker: Broker,
) -> None:
    await broker.settle()
    assert broker.open == ["clients"]
    assert broker.registered == [], "the registration that began the lifetime names it"
    client = await connected(broker.implicit)
    assert await answered(client)
    client.writer.close()


async def test_declared_listeners_replace_the_implicit_one(
    broker: Broker,
) -> None:
    await broker.settle()
    broker.certify()
    await broker.settle(plain(broker), tls(broker))
    assert broker.open == ["internal", "tls"]
    assert broker.shown == {"internal": broker.plain, "tls": broker.tls}
    with pytest.raises(ConnectionRefusedError):
        await connected(broker.implicit)
    await broker.settle()
    assert broker.open == ["clients"]
    assert broker.shown == {"PLAINTEXT": broker.implicit}


async def test_outside_listener_is_registered_with_given_address(
    broker: Broker,
) -> None:
    await broker.settle(plain(broker, "ext", advertised=()))
    assert broker.open == ["ext"]
    assert broker.shown == {}, "nobody outside could reach it yet"
    client = await connected(broker.plain)
    other = Advertised(broker_id=BrokerId(1), host="b1.example.com", port=31_001)
    own = Advertised(broker_id=BrokerId(0), host="b0.example.com", port=31_000)
    await broker.settle(plain(broker, "ext", advertised=(own, other)))
    assert broker.registered[-1] == (Endpoint(name="ext", host="b0.example.com", port=31_000),)
    moved = replace(own, host="203.0.113.7")
    await broker.settle(plain(broker, "ext", advertised=(moved, other)))
    assert broker.registered[-1] == (Endpoint(name="ext", host="203.0.113.7", port=31_000),)
    assert await answered(client), "its connections stay"
    client.writer.close()


async def test_unopenable_listener_reports_why_until_resolved(
    broker: Broker,
) -> None:
    await broker.settle(plain(broker), tls(broker))
    assert list(broker.listeners.closed) == ["tls"]
    assert "tls.crt" in broker.listeners.closed["tls"]
    broker.certify()
    await broker.look()
    assert broker.listeners.closed == {}


async def test_listener_on_implicit_port_keeps_its_connections(broker: Broker) -> None:
    await broker.settle()
    client = await connected(broker.implicit)
    assert await answered(client)
    await broker.settle(Listener(name="internal", port=broker.implicit))
    assert broker.open == ["internal"]
    assert await answered(client)
    assert broker.shown == {"internal": broker.implicit}
    client.writer.close()


async def test_listeners_that_swap_names_stay_open(
    broker: Broker,
) -> None:
    ports = broker.plain, broker.tls
    await broker.settle(*(Listener(name=n, port=p) for n, p in zip("ab", ports, strict=True)))
    await broker.settle(*(Listener(name=n, port=p) for n, p in zip("ba", ports, strict=True)))
    assert broker.shown == {"b": broker.plain, "a": broker.tls}
    await broker.settle()
    for port in ports:
        with pytest.raises(ConnectionRefusedError):
            await connected(port)


async def test_tls_listener_shows_the_certificate_of_name(
    broker: Broker,
) -> None:
    broker.certify()
    await broker.settle(tls(broker))
    certificate = broker.listeners.servers["tls"].certificate
    assert certificate is not None
    before = certificate.context
    broker.certify("other")
    await broker.settle(Listener(name="other", port=broker.tls, tls_version_min="1.3"))
    assert broker.listeners.servers["other"].certificate is certificate
    assert certificate.error == ""
    assert certificate.context is not None
    assert certificate.context is not before
    assert certificate.context.minimum_version is ssl.TLSVersion.TLSv1_3


async def test_listener_that_becomes_tls_closes_its_plaintext_connections(broker: Broker) -> None:
    await broker.settle(plain(broker, "tls"))
    client = await connected(broker.plain)
    assert await answered(client)
    broker.certify()
    await broker.settle(plain(broker, "tls", tls_version_min="1.2"))
    assert await client.closed() == b""
    client.writer.close()
    assert broker.listeners.servers["tls"].certificate is not None


async def test_tls_listener_waits_for_certificate_alone(
    broker: Broker,
) -> None:
    await broker.settle(plain(broker), tls(broker))
    assert broker.open == ["internal"]
    assert broker.shown == {"internal": broker.plain}
    broker.certify()
    await broker.look()
    assert broker.open == ["internal", "tls"]


async def test_listener_without_working_authentication_never_opens(
    broker: Broker,
) -> None:
    await broker.settle(plain(broker, "guarded", authentication=("Unheard",)))
    assert broker.open == []
    with pytest.raises(ConnectionRefusedError):
        await connected(broker.plain)


async def test_taken_port_is_tried_again(broker: Broker) -> None:
    stranger = await asyncio.start_server(lambda *_: None, HOST, broker.plain)
    await broker.settle(plain(broker))
    assert broker.open == []
    stranger.close()
    await stranger.wait_closed()
    await broker.look()
    assert broker.open == ["internal"]


async def test_endpoints_that_were_refused_are_registered_again(broker: Broker) -> None:
    broker.refuses = True
    await broker.settle(plain(broker))
    broker.refuses = False
    await broker.look()
    assert broker.registered[0] == broker.registered[1]
    await broker.look()
    assert len(broker.registered) == 2


async def test_declared_connection_limits_apply_with_fewer_for_tls(
    broker: Broker,
) -> None:
    broker.certify()
    await broker.settle(plain(broker), tls(broker))
    servers = broker.listeners.servers
    assert servers["internal"].limits.connections_max == ListenerLimits().connections_max
    assert servers["tls"].limits.connections_max == TLS_CONNECTIONS_MAX
    await broker.settle(plain(broker, connections_max=7), tls(broker, connections_max=9))
    assert servers["internal"].limits.connections_max == 7
    assert servers["tls"].limits.connections_max == 9


async def test_all_listeners_share_the_room_for_connections(tmp_path: Path) -> None:
    """Each had three eighths of the descriptors, or whatever its declaration said."""
    broker = Broker(tmp_path, files=1024)
    broker.certify()
    try:
        await broker.settle(plain(broker))
        servers = broker.listeners.servers
        assert servers["internal"].limits.connections_max == 384
        await broker.settle(plain(broker, connections_max=10), tls(broker, connections_max=100_000))
        servers = broker.listeners.servers
        limits = {name: one.limits.connections_max for name, one in servers.items()}
        assert limits == {"internal": 10, "tls": 374}
        silent = [await connected(broker.tls) for _ in range(49)]
        assert await silent[0].reader.read() == b""
        assert servers["tls"].handshakes is not None
        assert servers["tls"].handshakes.half_open == 48
        for one in silent:
            one.writer.close()
    finally:
        await broker.listeners.stop()
