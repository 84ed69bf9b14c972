"""What a group of many members costs its coordinator: memory, processor, and how long it takes.

Against clusters that `plimsoll local` starts, with raw requests over one connection a member and no
timers of clients.  `--members` for the memory and the heartbeats, `--joining` for the rebalance.
Machines differ: quote two builds on one machine.

    python -m bench.groups --members 1000 --joining 100
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import tempfile
import time
from itertools import count
from pathlib import Path
from typing import Any

from tests.integration.local_cluster import LocalCluster

from plimsoll_wire.api_versions import ApiKey, is_flexible
from plimsoll_wire.headers import request_frame
from plimsoll_wire.messages import decode_response, encode_request

SUBSCRIPTION = b"\0\1\0\0\0\1\0\6orders\xff\xff\xff\xff\0\0\0\0"
HEARTBEAT_S = 3.0
_NUMBERS = count(1)
CLUSTER = """\
apiVersion: plimsoll.dev/v1alpha1
kind: LogCluster
metadata: {name: main, namespace: kafka}
spec:
  brokers: {count: 3}
  storage: {size: 1Gi}
  config: {offsets.topic.num.partitions: 1, group.initial.rebalance.delay.ms: 0}
"""


class Member:
    """One connection, one request at a time."""

    def __init__(self, group: str) -> None:
        self.group = group
        self.member_id = ""
        self.joined: Any = None

    async def connect(self, host: str, port: int) -> None:
        self._reader, self._writer = await asyncio.open_connection(host, port)

    async def ask(self, key: ApiKey, version: int, values: dict[str, Any]) -> Any:
        body = encode_request(key, version, values)
        self._writer.write(request_frame(key, version, next(_NUMBERS), "bench", body))
        size = int.from_bytes(await self._reader.readexactly(4), "big")
        reply = await self._reader.readexactly(size)
        return decode_response(key, version, reply[5:] if is_flexible(key, version) else reply[4:])

    async def join(self) -> None:
        """Until it is told a generation."""
        while True:
            values = {
                "group_id": self.group,
                "session_timeout": 60_000,
                "rebalance_timeout": 60_000,
                "member_id": self.member_id,
                "group_instance_id": None,
                "protocol_type": "consumer",
                "protocols": [{"name": "range", "metadata": SUBSCRIPTION}],
                "reason": None,
            }
            self.joined = await self.ask(ApiKey.JOIN_GROUP, 9, values)
            self.member_id = str(self.joined.member_id)
            if int(self.joined.error_code) == 0:
                return

    def _identity(self) -> dict[str, Any]:
        return {
            "group_id": self.group,
            "generation_id": int(self.joined.generation_id),
            "member_id": self.member_id,
            "group_instance_id": None,
        }

    async def sync(self) -> int:
        parts = [
            {"member_id": str(one.member_id), "assignment": SUBSCRIPTION}
            for one in self.joined.members
        ]
        names = {"protocol_type": "consumer", "protocol_name": "range"}
        values = {**self._identity(), **names, "assignments": parts}
        return int((await self.ask(ApiKey.SYNC_GROUP, 5, values)).error_code)

    async def rebalance(self) -> float:
        """Join and sync until it has its part; when it had it."""
        while True:
            await self.join()
            if await self.sync() == 0:
                return time.monotonic()

    async def heartbeat(self) -> int:
        return int((await self.ask(ApiKey.HEARTBEAT, 4, self._identity())).error_code)

    async def leave(self) -> None:
        one = {"member_id": self.member_id, "group_instance_id": None, "reason": None}
        await self.ask(ApiKey.LEAVE_GROUP, 5, {"group_id": self.group, "members": [one]})
        self._writer.close()


async def coordinator(cluster: LocalCluster, group: str) -> tuple[int, str, int]:
    """Its broker, host and port."""
    host, _, port = cluster.bootstrap.split(",")[0].partition(":")
    asking = Member(group)
    await asking.connect(host, int(port))
    while True:
        values = {"key_type": 0, "coordinator_keys": [group]}
        (found,) = (await asking.ask(ApiKey.FIND_COORDINATOR, 4, values)).coordinators
        if not int(found.error_code):
            return int(found.node_id), str(found.host), int(found.port)
        await asyncio.sleep(0.1)


def _rss_kb(pid: int) -> int:
    text = Path(f"/proc/{pid}/status").read_text()
    return int(text.partition("VmRSS:")[2].split()[0])


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def rebalances(address: tuple[str, int], members: int, times: int) -> list[float]:
    """All of a stable group join again at once: from the first request to the last part."""
    group = [Member("joining") for _ in range(members)]
    for one in group:
        await one.connect(*address)
    await asyncio.gather(*(one.rebalance() for one in group))
    await _settled(group)
    took = []
    for _ in range(times):
        began_s = time.monotonic()
        took.append(max(await asyncio.gather(*(one.rebalance() for one in group))) - began_s)
        await _settled(group)
    for one in group:
        await one.leave()
    return took


async def _settled(group: list[Member]) -> None:
    """Until everybody is of the newest generation."""
    while True:
        codes = await asyncio.gather(*(one.heartbeat() for one in group))
        late = [one for one, code in zip(group, codes, strict=True) if code]
        if not late:
            return
        await asyncio.gather(*(one.rebalance() for one in late))


async def crowd(address: tuple[str, int], pid: int, members: int, seconds: float) -> None:
    group = [Member("crowd") for _ in range(members)]
    for one in group:
        await one.connect(*address)
    idle_kb = _rss_kb(pid)
    began_s = time.monotonic()
    await asyncio.gather(*(one.rebalance() for one in group))
    await _settled(group)
    took_s, grown_kb = time.monotonic() - began_s, _rss_kb(pid) - idle_kb
    print(f"{members} members have a part after {took_s:.2f} s")
    print(f"memory of {members} members: {grown_kb / 1024:.1f} MiB, connections not counted")
    quiet_s = await _spent(pid, seconds)
    beats = asyncio.gather(*(_beat(one, seconds) for one in group))
    busy_s = await _spent(pid, seconds)
    latest_ms = sorted(ms for each in await beats for ms in each)
    print(
        f"heartbeats every {HEARTBEAT_S:g} s: {(busy_s - quiet_s) / seconds:.1%} of a core, "
        f"p50 {statistics.median(latest_ms):.1f} ms, p99 {latest_ms[-len(latest_ms) // 100]:.1f} ms"
    )


async def _spent(pid: int, seconds: float) -> float:
    before = _cpu_s(pid)
    await asyncio.sleep(seconds)
    return _cpu_s(pid) - before


async def _beat(member: Member, seconds: float) -> list[float]:
    took = []
    end = time.monotonic() + seconds
    await asyncio.sleep(hash(member.member_id) % 3_000 / 1_000)
    while time.monotonic() < end:
        began_s = time.monotonic()
        assert await member.heartbeat() == 0
        took.append((time.monotonic() - began_s) * 1_000)
        await asyncio.sleep(HEARTBEAT_S)
    return took


async def measure(cluster: LocalCluster, arguments: argparse.Namespace) -> None:
    broker, *address = await coordinator(cluster, "crowd")
    where = (str(address[0]), int(str(address[1])))
    took = sorted(await rebalances(where, arguments.joining, arguments.times))
    print(
        f"{arguments.joining} members, join to last sync: "
        f"p50 {statistics.median(took) * 1000:.0f} ms, worst {took[-1] * 1000:.0f} ms"
    )
    await crowd(where, cluster.broker_pids[broker], arguments.members, arguments.seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--members", type=int, default=1_000)
    parser.add_argument("--joining", type=int, default=100)
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=15.0)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory, "cluster.yaml")
        file.write_text(CLUSTER)
        with LocalCluster(Path(directory, "data"), brokers=None, files=[file]) as cluster:
            asyncio.run(measure(cluster, arguments))


if __name__ == "__main__":
    main()
