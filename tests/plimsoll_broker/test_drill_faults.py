"""Faults that a broker injects into itself by order of the controller, and how they end."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from tests.plimsoll_broker.test_heartbeats import POSITION, Controller
from tests.plimsoll_broker.tls_listening import until

from plimsoll_broker.config import DRILLS_ENV, read
from plimsoll_broker.control.controller_client import HeartbeatResult
from plimsoll_broker.handlers.routes import replication_routes
from plimsoll_broker.inside import InsidePeers
from plimsoll_broker.node.drill_faults import DrillFaults
from plimsoll_broker.node.heartbeats import HeartbeatPeers, Heartbeats
from plimsoll_broker.replication.peer_connection import PeerConnection
from plimsoll_broker.server.dispatch import Dispatch
from plimsoll_broker.server.listener import CUT, BrokerListener
from plimsoll_broker.storage.disk import Disk, StorageError, StorageFault
from plimsoll_core.ids import BrokerEpoch, BrokerId
from plimsoll_core.messages.brokers import BrokerFigures
from plimsoll_core.messages.drills import ORDER_MS_MAX, BrokerFault, DrillOrder
from plimsoll_core.messages.requests import HeartbeatAnswer
from plimsoll_net.dialling import PeerAddress

CLUSTER = UUID(int=7)
HOST = "127.0.0.1"


def order(
    fault: BrokerFault, number: int = 1, broker: int = 0, left_ms: int = 60_000
) -> DrillOrder:
    return DrillOrder(broker_id=BrokerId(broker), number=number, fault=fault, left_ms=left_ms)


class Faults:
    """Broker 0 with drills allowed."""

    def __init__(self, *, allowed: bool = True) -> None:
        self.inside, self.disk = InsidePeers(CLUSTER), Disk()
        self.faults = DrillFaults(BrokerId(0), self.inside, self.disk, allowed=allowed)

    def obey(self, given: DrillOrder) -> None:
        """The order comes until its fault has begun."""
        assert self.faults.ordered(given)
        assert not self.faults.ordered(given)

    @property
    def state(self) -> tuple[bool, float, bool]:
        return self.inside.is_cut, self.inside.delay_s, self.disk.is_full


NOTHING = (False, 0.0, False)


@pytest.mark.parametrize(
    ("fault", "state"),
    [
        ("CutLinks", (True, 0.0, False)),
        ("SlowLinks", (False, 0.5, False)),
        ("FillDisk", (False, 0.0, True)),
    ],
)
async def test_fault_begins_with_second_order_and_ends(fault: BrokerFault, state: Any) -> None:
    one = Faults()
    given = order(fault)
    assert one.faults.ordered(given)
    assert (one.state, one.faults.number) == (NOTHING, 1)
    assert not one.faults.ordered(given)
    assert one.state == state
    one.faults.close()
    assert one.state == NOTHING
    assert not one.faults.ordered(given), "an order is obeyed once"
    assert one.state == NOTHING


@pytest.mark.parametrize("given", [order("FillDisk", broker=1), order("FillDisk", left_ms=0)])
async def test_order_not_meant_or_not_allowed_is_ignored(given: DrillOrder) -> None:
    one = Faults(allowed=given.broker_id == 1)
    assert not one.faults.ordered(given)
    assert not one.faults.ordered(given)
    assert (one.state, one.faults.number) == (NOTHING, 0)


async def test_fault_ends_by_the_broker_s_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    one, timers = Faults(), []
    loop = asyncio.get_running_loop()

    def call_later(delay_s: float, callback: Any) -> Any:
        timers.append((delay_s, callback))
        return SimpleNamespace(cancel=lambda: None)

    monkeypatch.setattr(loop, "call_later", call_later, raising=False)
    one.obey(order("CutLinks", left_ms=ORDER_MS_MAX))
    monkeypatch.undo()
    ((delay_s, callback),) = timers
    assert (delay_s, one.inside.is_cut) == (60.0, True)
    callback()
    assert one.state == NOTHING


async def test_newer_order_ends_the_older_fault() -> None:
    one = Faults()
    one.obey(order("FillDisk"))
    one.obey(order("SlowLinks", number=2))
    assert one.state == (False, 0.5, False)
    assert not one.faults.ordered(order("FillDisk"))
    assert one.state == (False, 0.5, False)
    one.faults.close()


async def test_heartbeat_tells_of_an_order_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("plimsoll_broker.node.heartbeats.INTERVAL_MS", 3_600_000)
    one, client = Faults(), Controller()

    async def heartbeat(beat: Any, _: int) -> HeartbeatResult:
        client.heard.append(beat)
        answer = HeartbeatAnswer(is_caught_up=True, is_fenced=False, should_shut_down=False)
        return HeartbeatResult(answer, confirmed=True, drill=order("FillDisk"))

    client.heartbeat = heartbeat  # type: ignore[method-assign]
    asked = HeartbeatPeers(
        figures=lambda: BrokerFigures(drill=one.faults.number), drill=one.faults.ordered
    )
    stream: Any = SimpleNamespace(position=POSITION, unknown="")
    task = asyncio.ensure_future(
        Heartbeats(client, stream, BrokerEpoch(5), asked=asked).run()  # type: ignore[arg-type]
    )
    await until(lambda: len(client.heard) == 2 and one.disk.is_full)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert [beat.figures.drill for beat in client.heard if beat.figures] == [0, 1]
    assert one.disk.is_full
    one.faults.close()


# --- what the switches do -----------------------------------------------------------------------


async def test_full_disk_takes_no_record(tmp_path: Path) -> None:
    disk = Disk()
    file = disk.open(tmp_path / "log")
    file.append(b"a")
    disk.is_full = True
    with pytest.raises(StorageError) as raised:
        file.append(b"b")
    assert raised.value.fault is StorageFault.FULL
    assert disk.room(tmp_path)[0] == 0
    with pytest.raises(StorageError):
        disk.set_apart(tmp_path / "reserve", 1)
    disk.is_full = False
    file.append(b"c")
    assert file.pread(9, 0) == b"ac"
    assert disk.room(tmp_path)[0] > 0


async def test_cut_closes_links_and_admits_none() -> None:
    mine, theirs = InsidePeers(CLUSTER), InsidePeers(CLUSTER)
    listener = BrokerListener(Dispatch({}))
    listener.inside = mine
    mine.changed = listener.review
    port = await listener.start(HOST, 0)
    address = PeerAddress(HOST, port)
    coming, _ = await theirs.broker(PeerConnection, address, BrokerId(0))
    going, link = await mine.broker(PeerConnection, address, BrokerId(0))
    await until(lambda: listener.connections == 2)
    mine.cut()
    await until(lambda: coming.lost_for_ms is not None and going.lost_for_ms is not None)
    assert (listener.connections, link.is_open) == (0, False)
    assert listener.stats.closed_for[CUT] >= 1
    with pytest.raises(ConnectionRefusedError, match="on purpose"):
        await mine.broker(PeerConnection, address, BrokerId(1))
    with pytest.raises(ConnectionRefusedError):
        await mine.controller(PeerConnection, address)
    late, _ = await theirs.broker(PeerConnection, address, BrokerId(0))
    await until(lambda: late.lost_for_ms is not None)
    mine.mend()
    again, _ = await mine.broker(PeerConnection, address, BrokerId(1))
    assert again.lost_for_ms is None
    again.close()
    await listener.stop()


async def test_slow_links_delay_answers_to_followers(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []

    async def sleep(delay_s: float) -> None:
        slept.append(delay_s)

    manager: Any = SimpleNamespace(peers=InsidePeers(CLUSTER))
    table = replication_routes(manager)
    monkeypatch.setattr("plimsoll_broker.handlers.routes.asyncio.sleep", sleep)
    manager.peers.delay_s = 0.5
    context: Any = SimpleNamespace(api_version=99, body=b"")
    for handler in table.values():
        with pytest.raises(Exception):  # noqa: B017,PT011 the request says nothing
            await handler(context)  # type: ignore[misc]
    assert slept == [0.5, 0.5]


async def test_slow_links_delay_a_leader_s_reply(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr("plimsoll_broker.replication.peer_connection.asyncio", Sleepless(slept))
    server = await asyncio.start_server(echo, HOST, 0)
    port = server.sockets[0].getsockname()[1]
    peers = InsidePeers(CLUSTER)
    connection, _ = await peers.broker(PeerConnection, PeerAddress(HOST, port), BrokerId(1))
    connection.peers = peers
    frame = b"\x00\x00\x00\x04ping"
    assert bytes(await connection.request(frame, 300.0)) == b"ping"
    peers.delay_s = 0.5
    assert bytes(await connection.request(frame, 300.0)) == b"ping"
    assert slept == [0.5]
    connection.close()
    server.close()
    await server.wait_closed()


class Sleepless:
    """`asyncio`, whose sleeps are only noted."""

    def __init__(self, slept: list[float]) -> None:
        self._slept = slept

    async def sleep(self, delay_s: float) -> None:
        self._slept.append(delay_s)

    def __getattr__(self, name: str) -> Any:
        return getattr(asyncio, name)


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(8):
            writer.write(data)
    except ConnectionResetError:
        pass
    finally:
        writer.close()


def test_environment_allows_drills(tmp_path: Path) -> None:
    path = tmp_path / "broker.yaml"
    path.write_text(
        "{cluster_id: 00000000-0000-0000-0000-000000000007, broker_id: 1, data_dir: /d, "
        "listen: {host: h, port: 1}, replication: {host: h, port: 2}, controllers: ['c:1']}"
    )
    assert [read(path, {DRILLS_ENV: text}).allow_drills for text in ("", "true")] == [False, True]
