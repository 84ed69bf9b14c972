"""Processor time of a produce, as a multiple of the thin Python floor's in the same process.

    python -m bench.peers.one_process [--write] [--json]

Three brokers' data paths and the floor's nodes share a process and its event loop; real sockets,
real files. One client sends the same Produce again and again, in short blocks: Plimsoll and the
floor in turns, so that both meet the same caches and clock rates. The figure is the ratio of the
least tenth of the blocks: other programs make blocks longer, and Plimsoll's more than the floor's,
since more of its code and data leave the caches. `--write` records it in
`recorded.json`.

Beside it, calls: how many Python and C functions a produce calls, which load does not change. A
test compares both with the recorded figures, the multiple on an idle machine alone
(`bench.peers.recorded`).
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import struct
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import Any, NamedTuple

import uvloop
from bench.peers import recorded
from bench.peers.floor.thin_floor import Node
from bench.peers.processor_time import Meter, Processes
from bench.peers.systems.floor import consecutive
from tests.plimsoll_broker.trio import Broker, Controller, a_batch

from plimsoll_broker.replication.peer_connection import PeerConnection
from plimsoll_wire.api_versions import ApiKey
from plimsoll_wire.headers import request_frame
from plimsoll_wire.messages import encode_request

BLOCK = 10
ROUNDS = 200
WARM = 300
COUNTED = 20
REPLICAS = (3, 1)
MEMORY = Path("/dev/shm")
ASK_S = 30
ERROR_CODE_AT = 4 + 4 + 2 + 1 + 4 + 4  # of an answer about topic "t"


class Target:
    """A leader, and the Produce that is sent to it."""

    def __init__(self, connection: PeerConnection, topic: str) -> None:
        self._connection = connection
        data = {"index": 0, "records": a_batch(1, filler=1000)}
        values = {
            "transactional_id": None,
            "acks": -1,
            "timeout": 30_000,
            "topic_data": [{"name": topic, "partition_data": [data]}],
        }
        body = encode_request(ApiKey.PRODUCE, 7, values)
        self._frame = request_frame(ApiKey.PRODUCE, 7, 1, "bench", body)
        self.us: list[float] = []
        self.calls: list[float] = []

    async def produce(self, count: int) -> None:
        for _ in range(count):
            answer = await self._connection.request(self._frame, ASK_S)
        (code,) = struct.unpack_from(">h", answer, ERROR_CODE_AT)
        assert code == 0, code

    async def block(self) -> None:
        began = time.thread_time()
        await self.produce(BLOCK)
        self.us.append((time.thread_time() - began) / BLOCK * 1e6)

    async def count_calls(self) -> None:
        calls = 0

        def note(_: FrameType, event: str, __: Any) -> None:
            nonlocal calls
            calls += event in ("call", "c_call")

        sys.setprofile(note)
        await self.produce(BLOCK)
        sys.setprofile(None)
        self.calls.append(calls / BLOCK)


@asynccontextmanager
async def plimsoll(directory: Path) -> AsyncIterator[dict[int, Target]]:
    controller = Controller()
    brokers = [Broker(controller, one, directory / str(one)) for one in range(3)]
    for broker in brokers:
        await broker.start()
    controller.create("t", (0, 1, 2))
    controller.create("u", (0,))
    while any(len(broker.manager) < 1 for broker in brokers):  # noqa: ASYNC110
        await asyncio.sleep(0.05)
    connection = await PeerConnection.open("127.0.0.1", brokers[0].server.port, ASK_S)
    try:
        yield {3: Target(connection, "t"), 1: Target(connection, "u")}
    finally:
        for broker in brokers:
            await broker.stop()


@asynccontextmanager
async def floor(directory: Path, replicas: int) -> AsyncIterator[Target]:
    ports = consecutive(replicas), consecutive(replicas)
    directory.mkdir()
    nodes = [Node(number, replicas, ports, directory) for number in range(replicas)]
    await asyncio.gather(*(node.start() for node in nodes))
    connection = await PeerConnection.open("127.0.0.1", nodes[0].client_port, ASK_S)
    try:
        yield Target(connection, "t")
    finally:
        for node in nodes:
            node.stop()


async def measure(directory: Path, rounds: int = ROUNDS) -> dict[str, float]:
    """Return the figures at RF 3 and RF 1."""
    async with (
        plimsoll(directory / "plimsoll") as ours,
        floor(directory / "floor3", 3) as three,
        floor(directory / "floor1", 1) as one,
    ):
        floors = {3: three, 1: one}
        every = [target for replicas in REPLICAS for target in (ours[replicas], floors[replicas])]
        for target in every:
            await target.produce(WARM)
        gc.collect()
        gc.freeze()
        gc.disable()
        for _ in range(rounds):
            for target in every:
                await target.block()
        for _ in range(COUNTED):
            for target in every:
                await target.count_calls()
        gc.enable()
        found = {}
        for replicas in REPLICAS:
            least_us, floor_us = least(ours[replicas].us), least(floors[replicas].us)
            found[f"RF {replicas}, times the floor"] = least_us / floor_us
            found[f"RF {replicas}, calls"] = least(ours[replicas].calls)
            found[f"RF {replicas}, µs"] = least_us
        return found


def least(values: list[float]) -> float:
    """Return the greatest of the least tenth."""
    return sorted(values)[len(values) // 10]


class Figures(NamedTuple):
    """`others_cores`: what other programs took meanwhile, in processors."""

    found: dict[str, float]
    others_cores: float


def figures() -> Figures:
    """Measure, with files in memory: what a disk costs is not the point."""
    meter = Meter(Processes(brokers=()))
    with TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as directory:
        found = uvloop.run(measure(Path(directory)))
    return Figures(found, meter.used().others_cores)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--write", action="store_true", help="record the figures")
    arguments = parser.parse_args()
    found, others_cores = figures()
    if arguments.write:
        recorded.write(found)
    for name, value in found.items():
        print(f"{name}: {value:.4g}")
    worse = recorded.worse(found, others_cores)
    for sentence in worse:
        print(sentence)
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
