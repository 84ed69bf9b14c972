"""The floor in thin Python: the least that a replicated produce costs on uvloop.

    python -m bench.peers.floor.thin_floor ID NODES CLIENT_PORT PEER_PORT DIRECTORY

A leader takes Kafka's Produce 7 with one batch, checks its CRC, stamps base offset and epoch,
writes it, and pushes it to the other nodes; these check the CRC, write it, and answer with their
end. The leader answers when all have it. There is no ISR, no epoch, no recovery and no limit: what
Plimsoll costs more is the price of these, and of its way. Node j takes clients at CLIENT_PORT + j.
"""

from __future__ import annotations

import asyncio
import os
import struct
import sys
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import uvloop
from crc32c import crc32c

PARTITIONS = 12
PRODUCE, METADATA, API_VERSIONS = 0, 3, 18
VERSIONS = ((PRODUCE, 3, 7), (1, 4, 4), (2, 1, 1), (METADATA, 1, 1), (API_VERSIONS, 0, 0))
UNSUPPORTED_VERSION = 35
EPOCH = 1
CRC_COVERS = 21
"""Where in a batch the bytes begin that its CRC covers."""

HEADER = struct.Struct(">hhih")  # key, version, correlation id, length of the client id
SHORT, INT = struct.Struct(">h"), struct.Struct(">i")
PAIR = struct.Struct(">ii")
BASE_OFFSET, LEADER_EPOCH = struct.Struct(">q"), struct.Struct(">i")  # at 0, at 12
CRC, LAST_OFFSET_DELTA = struct.Struct(">I"), struct.Struct(">i")  # at 17, at 23
FRAME = struct.Struct(">iiq")  # between nodes: size, partition, end; a push has the batch behind it
PRODUCED = struct.Struct(">iihqqqi")  # count, partition, error, offset, time, start, throttled


class Waiter:
    """A produce request that waits. It is answered once all nodes have its batch and the earlier
    requests of its connection are answered."""

    __slots__ = ("base_offset", "client", "correlation_id", "done", "end", "partition", "topic")

    def __init__(self, client: Client, correlation_id: int, topic: bytes, base_offset: int) -> None:
        self.client = client
        self.correlation_id = correlation_id
        self.topic = topic
        self.base_offset = base_offset
        self.partition = 0
        self.end = 0
        self.done = False


class Partition:
    __slots__ = ("end", "ends", "file", "waiters")

    def __init__(self, file: int, peers: int) -> None:
        self.file = file
        self.end = 0
        self.ends = [0] * peers
        self.waiters: deque[Waiter] = deque()

    def commit(self) -> None:
        """Answer the produces that all nodes have."""
        committed = min(self.ends, default=self.end)
        while self.waiters and self.waiters[0].end <= committed:
            waiter = self.waiters.popleft()
            waiter.done = True
            waiter.client.answer()


class Node:
    """One of some nodes. Each leads the partitions that a client sends it."""

    def __init__(self, number: int, nodes: int, ports: tuple[int, int], directory: Path) -> None:
        self.number = number
        self.nodes = nodes
        self.client_port, self._peer_port = ports
        flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
        self.partitions = [
            Partition(os.open(directory / f"{number}-{index}.log", flags), nodes - 1)
            for index in range(PARTITIONS)
        ]
        self.followers: list[asyncio.Transport] = []
        self._out: dict[asyncio.Transport, list[bytes]] = {}
        self._servers: list[asyncio.Server] = []

    async def start(self) -> None:
        """Listen; return when connected with all other nodes."""
        self._loop = asyncio.get_running_loop()
        await self._listen(lambda: Follower(self), self._peer_port)
        for other in range(self.nodes):
            if other != self.number:
                self.followers.append(await self._dial(len(self.followers), other))
        await self._listen(lambda: Client(self), self.client_port)

    async def _listen(self, protocol: Callable[[], Framed], port: int) -> None:
        listening = self._loop.create_server(protocol, "127.0.0.1", port + self.number)
        self._servers.append(await listening)

    async def _dial(self, place: int, other: int) -> asyncio.Transport:
        for _ in range(200):
            try:
                transport, _ = await self._loop.create_connection(
                    lambda: Leader(self, place), "127.0.0.1", self._peer_port + other
                )
            except OSError:
                await asyncio.sleep(0.05)
            else:
                return transport
        raise TimeoutError(f"node {other} does not listen")

    def stop(self) -> None:
        for server in self._servers:
            server.close()
        for transport in self.followers:
            transport.close()
        for partition in self.partitions:
            os.close(partition.file)

    def send(self, transport: asyncio.Transport, data: bytes) -> None:
        """Write at the end of the turn, all of a connection at once."""
        if not self._out:
            self._loop.call_soon(self._flush)
        waiting = self._out.get(transport)
        if waiting is None:
            self._out[transport] = [data]
        else:
            waiting.append(data)

    def _flush(self) -> None:
        for transport, data in self._out.items():
            transport.write(data[0] if len(data) == 1 else b"".join(data))
        self._out.clear()


class Framed(asyncio.Protocol):
    """Cuts what comes into frames."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self._rest = b""
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        data = self._rest + data if self._rest else data
        at, size = 0, len(data)
        while size - at >= 4:
            end = at + 4 + INT.unpack_from(data, at)[0]
            if end > size:
                break
            self.frame(data, at + 4, end)
            at = end
        self._rest = data[at:] if at < size else b""

    def frame(self, data: bytes, at: int, end: int) -> None:
        raise NotImplementedError


class Client(Framed):
    def __init__(self, node: Node) -> None:
        super().__init__(node)
        self._waiters: deque[Waiter] = deque()

    def frame(self, data: bytes, at: int, end: int) -> None:
        key, version, correlation_id, length = HEADER.unpack_from(data, at)
        body = at + HEADER.size + max(length, 0)
        if key == PRODUCE:
            self._produce(data, body, correlation_id)
            return
        answer = _versions(version) if key == API_VERSIONS else self._metadata(data, body)
        self._send(INT.pack(correlation_id) + answer)

    def _send(self, body: bytes) -> None:
        self.node.send(self.transport, INT.pack(len(body)) + body)

    def _produce(self, data: bytes, at: int, correlation_id: int) -> None:
        (length,) = SHORT.unpack_from(data, at)  # transactional id, acks, timeout, one topic
        at += 2 + max(length, 0) + 6 + 4
        (length,) = SHORT.unpack_from(data, at)
        topic = data[at + 2 : at + 2 + length]
        at += 2 + length + 4  # one partition
        index, size = PAIR.unpack_from(data, at)
        batch = bytearray(memoryview(data)[at + 8 : at + 8 + size])
        check(batch)
        partition = self.node.partitions[index]
        BASE_OFFSET.pack_into(batch, 0, partition.end)
        LEADER_EPOCH.pack_into(batch, 12, EPOCH)
        waiter = Waiter(self, correlation_id, topic, partition.end)
        waiter.partition = index
        partition.end += LAST_OFFSET_DELTA.unpack_from(batch, 23)[0] + 1
        waiter.end = partition.end
        os.write(partition.file, batch)
        self._waiters.append(waiter)
        partition.waiters.append(waiter)
        push = FRAME.pack(FRAME.size - 4 + size, index, partition.end) + batch
        for follower in self.node.followers:
            self.node.send(follower, push)
        if not self.node.followers:
            partition.commit()

    def answer(self) -> None:
        waiters = self._waiters
        while waiters and waiters[0].done:
            one = waiters.popleft()
            name = PAIR.pack(one.correlation_id, 1) + SHORT.pack(len(one.topic)) + one.topic
            self._send(name + PRODUCED.pack(1, one.partition, 0, one.base_offset, -1, 0, 0))

    def _metadata(self, data: bytes, at: int) -> bytes:
        """Describe whatever topic is asked for: node i leads partition i, i + nodes, ..."""
        nodes = range(self.node.nodes)
        all_nodes = INT.pack(len(nodes)) + b"".join(map(INT.pack, nodes))
        brokers = b"".join(
            struct.pack(">ih9sih", one, 9, b"127.0.0.1", self.node.client_port + one, -1)
            for one in nodes
        )
        answer = INT.pack(len(nodes)) + brokers + INT.pack(0)
        if INT.unpack_from(data, at)[0] <= 0:
            return answer + INT.pack(0)
        (length,) = SHORT.unpack_from(data, at + 4)
        name = data[at + 6 : at + 6 + length]
        topic = struct.pack(">ihh", 1, 0, length) + name + struct.pack(">bi", 0, PARTITIONS)
        return answer + topic + b"".join(
            struct.pack(">hii", 0, index, index % len(nodes)) + all_nodes + all_nodes
            for index in range(PARTITIONS)
        )  # fmt: skip


class Follower(Framed):
    """Takes another node's pushes."""

    def frame(self, data: bytes, at: int, end: int) -> None:
        _, index, upto = FRAME.unpack_from(data, at - 4)
        batch = memoryview(data)[at + FRAME.size - 4 : end]
        check(batch)
        partition = self.node.partitions[index]
        os.write(partition.file, batch)
        partition.end = upto
        self.node.send(self.transport, FRAME.pack(FRAME.size - 4, index, upto))


class Leader(Framed):
    """Takes another node's answers to pushes."""

    def __init__(self, node: Node, place: int) -> None:
        super().__init__(node)
        self._place = place

    def frame(self, data: bytes, at: int, end: int) -> None:
        _, index, upto = FRAME.unpack_from(data, at - 4)
        partition = self.node.partitions[index]
        partition.ends[self._place] = upto
        partition.commit()


def check(batch: bytearray | memoryview) -> None:
    if crc32c(memoryview(batch)[CRC_COVERS:]) != CRC.unpack_from(batch, 17)[0]:
        raise ValueError("a batch has another CRC than it says")


def _versions(version: int) -> bytes:
    def parts() -> Iterator[bytes]:
        yield struct.pack(">hi", UNSUPPORTED_VERSION if version else 0, len(VERSIONS))
        for one in VERSIONS:
            yield struct.pack(">hhh", *one)

    return b"".join(parts())


async def main() -> None:
    number, nodes, client_port, peer_port = map(int, sys.argv[1:5])
    await Node(number, nodes, (client_port, peer_port), Path(sys.argv[5])).start()
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(main())
