"""How long single requests and metadata updates hold a broker's event loop, one line for each.

    python -m bench.loop_holds [--partitions 10000] [--named 20000] [--only WORD]

One broker's data path and handlers in this process, behind a real socket, on asyncio's own loop: of
every callback and every step of a task the processor time of the loop's thread is taken, and the
longest one told.  What threads compute meanwhile does not count: they let the loop have its turn
every few milliseconds.  The clients' sides run in the same loop, but only pass bytes on.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import UUID

from tests.holding import nothing_holds_the_loop
from tests.plimsoll_broker.coordinating_brokers import Member
from tests.plimsoll_broker.trio import Broker, Controller, a_batch

from plimsoll_broker.handlers.cluster_view import ImageWatch
from plimsoll_broker.handlers.long_work import Aside
from plimsoll_broker.handlers.routes import routes
from plimsoll_broker.replication.peer_connection import PeerConnection
from plimsoll_broker.server.dispatch import Dispatch
from plimsoll_broker.server.listener import BrokerListener
from plimsoll_core.cluster.listener_peers import Port
from plimsoll_core.ids import BrokerLifetime
from plimsoll_core.messages.requests import Answer, Request
from plimsoll_wire.api_versions import SUPPORTED, ApiKey
from plimsoll_wire.headers import request_frame
from plimsoll_wire.messages import encode_request

WAIT_S = 120.0
TOPICS = 20
"""The partitions are those of so many topics."""

Work = Callable[[], Awaitable[object]]


class Asked(Controller):
    """Takes what handlers forward, as the controller's client does: another process decides."""

    async def command(self, request: Request, timeout_ms: int = 0, *, once: bool = False) -> Answer:
        if not once:
            return await super().command(request, timeout_ms)
        return await asyncio.to_thread(self.request, request)  # changes nothing here


class Bench:
    """One broker that leads everything, and a client with a connection of its own."""

    def __init__(self, directory: Path, partitions: int, named: int) -> None:
        self.controller = Asked()
        self.directory = directory
        self.partitions = partitions
        self.named = named
        self.correlation_id = 0

    async def start(self) -> None:
        self.one = await Broker(self.controller, 0, self.directory / "0").start()
        self.two = await Broker(self.controller, 1, self.directory / "1").start()
        self.watch = watch = ImageWatch(self.controller.image)
        apply = self.one.path.apply_image

        def both(old: Any, new: Any) -> None:
            apply(old, new)
            watch.update(old, new)

        self.one.path.apply_image = both  # type: ignore[method-assign]
        client: Any = self.controller
        broker = BrokerLifetime(self.one.id, self.one.epoch)
        groups = Member(self.one).coordinators
        table = routes(broker, client, watch, groups, Port.CLIENTS, Aside())
        self.server = BrokerListener(Dispatch(table))
        self.port = await self.server.start("127.0.0.1", 0)

    async def stop(self) -> None:
        await self.server.stop()
        await self.one.stop()
        await self.two.stop()

    def name(self, topic: int) -> str:
        return f"topic-{topic}"

    async def hosts(self, count: int, broker: Broker) -> None:
        while len(broker.manager) != count:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        await asyncio.sleep(0.5)

    # --- metadata -------------------------------------------------------------------------------

    def declare(self, *replicas: int) -> None:
        for topic in range(TOPICS):
            self.controller.create(self.name(topic), *[replicas] * (self.partitions // TOPICS))

    async def created(self) -> None:
        self.declare(0)
        await self.hosts(self.partitions, self.one)

    async def new_terms(self) -> None:
        """Every partition gets another term in one update, as after an election of all."""
        self._changed(lambda p: {"leader_epoch": p.leader_epoch + 1})
        await asyncio.sleep(1)

    async def all_follow(self) -> None:
        self._changed(lambda p: {"leader": 1, "leader_epoch": p.leader_epoch + 1})
        await asyncio.sleep(2)

    async def all_lead(self) -> None:
        self._changed(lambda p: {"leader": 0, "leader_epoch": p.leader_epoch + 1})
        await asyncio.sleep(2)

    def _changed(self, fields: Callable[[Any], dict[str, int]]) -> None:
        import msgspec

        image = self.controller.image
        partitions = image.partitions
        for key, partition in list(partitions.items()):
            epoch = partition.partition_epoch + 1
            values = {**fields(partition), "partition_epoch": epoch}
            partitions = partitions.set(key, msgspec.structs.replace(partition, **values))
        self.controller.image = msgspec.structs.replace(image, partitions=partitions)
        self.one.tell()

    async def dropped(self) -> None:
        """All topics go in one update."""
        import msgspec
        from immutables import Map

        image = self.controller.image
        nothing = {"topics": Map(), "topic_ids": Map(), "partitions": Map(), "hosted": Map()}
        self.controller.image = msgspec.structs.replace(image, **nothing)
        self.one.tell()
        await self.hosts(0, self.one)

    # --- requests -------------------------------------------------------------------------------

    async def ask(self, key: ApiKey, values: dict[str, Any], version: int | None = None) -> bytes:
        version = SUPPORTED[key].last if version is None else version
        body = encode_request(key, version, values)
        return await self.send(key, version, body)

    async def send(self, key: ApiKey, version: int, body: bytes) -> bytes:
        self.correlation_id += 1
        frame = request_frame(key, version, self.correlation_id, "bench", body)
        client = await PeerConnection.open("127.0.0.1", self.port, WAIT_S)
        try:
            return bytes(await client.request(frame, WAIT_S))
        finally:
            client.close()

    def all_partitions(self) -> list[tuple[str, range]]:
        each = self.partitions // TOPICS
        return [(self.name(topic), range(each)) for topic in range(TOPICS)]

    def requests(self) -> Iterator[tuple[str, Work]]:
        yield from self._described()
        yield from self._data()
        yield from self._fetches()
        yield from self._admin()

    def _described(self) -> Iterator[tuple[str, Work]]:
        names = [f"unknown-{number}" for number in range(self.named)]
        flags = {
            "allow_auto_topic_creation": False,
            "include_topic_authorized_operations": False,
            "include_cluster_authorized_operations": False,
        }

        def metadata(asked: list[str] | None) -> Work:
            topics = None if asked is None else [{"name": n, "topic_id": None} for n in asked]
            return lambda: self.ask(ApiKey.METADATA, {"topics": topics, **flags}, 12)

        yield "Metadata of all topics", metadata(None)
        yield f"Metadata naming {self.named} unknown topics", metadata(names)
        yield "Metadata naming one topic 200 times", metadata([self.name(0)] * 200)
        pages = {"response_partition_limit": 2000, "cursor": None}
        key = ApiKey.DESCRIBE_TOPIC_PARTITIONS
        yield "DescribeTopicPartitions of all", lambda: self.ask(key, {"topics": [], **pages})
        named = [{"name": name} for name in names]
        text = f"DescribeTopicPartitions naming {self.named}"
        yield text, lambda: self.ask(key, {"topics": named, **pages})

        def configs(kind: int, asked: list[str]) -> Work:
            resources = [
                {"resource_type": kind, "resource_name": name, "configuration_keys": None}
                for name in asked
            ]
            values = {
                "resources": resources,
                "include_synonyms": True,
                "include_documentation": True,
            }
            return lambda: self.ask(ApiKey.DESCRIBE_CONFIGS, values)

        yield f"DescribeConfigs of {self.named} unknown topics", configs(2, names)
        yield "DescribeConfigs naming one topic 2,000 times", configs(2, [self.name(0)] * 2000)
        key2 = ApiKey.LIST_PARTITION_REASSIGNMENTS
        values = {"timeout": 1000, "topics": None}
        yield "ListPartitionReassignments of all", lambda: self.ask(key2, values)

    def _data(self) -> Iterator[tuple[str, Work]]:
        def asked(name: str, fields: Callable[[int], dict[str, Any]]) -> list[dict[str, Any]]:
            return [
                {name: topic, "partitions": [fields(index) for index in indexes]}
                for topic, indexes in self.all_partitions()
            ]

        offsets = asked(
            "name", lambda i: {"partition_index": i, "current_leader_epoch": -1, "timestamp": -1}
        )
        values = {"replica_id": -1, "isolation_level": 0, "topics": offsets}
        yield "ListOffsets", lambda: self.ask(ApiKey.LIST_OFFSETS, values, 7)
        fields = asked(
            "topic", lambda i: {"partition": i, "current_leader_epoch": -1, "leader_epoch": 0}
        )
        epochs = {"replica_id": -1, "topics": fields}
        yield "OffsetForLeaderEpoch", lambda: self.ask(ApiKey.OFFSET_FOR_LEADER_EPOCH, epochs)
        deletions = {
            "topics": asked("name", lambda i: {"partition_index": i, "offset": 0}),
            "timeout": 10_000,
        }
        yield "DeleteRecords", lambda: self.ask(ApiKey.DELETE_RECORDS, deletions)

        def produce(acks: int) -> Work:
            batch = a_batch(1)
            data = [
                {
                    "name": topic,
                    "partition_data": [{"index": i, "records": batch} for i in indexes],
                }
                for topic, indexes in self.all_partitions()
            ]
            data = data[: TOPICS // 2]  # logs that are written to have three files open each
            head = {"transactional_id": None, "acks": acks, "timeout": 30_000}
            body = encode_request(ApiKey.PRODUCE, 9, {**head, "topic_data": data})
            return lambda: self.send(ApiKey.PRODUCE, 9, body)

        yield "Produce, a batch for half of the partitions, acks=1", produce(1)
        yield "Produce, a batch for half of the partitions, acks=-1", produce(-1)

    def _fetches(self) -> Iterator[tuple[str, Work]]:
        def fetch(offset: int, wait_ms: int, named: list[tuple[UUID, int]]) -> Work:
            topics: dict[UUID, list[dict[str, Any]]] = {}
            for topic_id, index in named:
                partition = {
                    "partition": index,
                    "current_leader_epoch": -1,
                    "fetch_offset": offset,
                    "last_fetched_epoch": -1,
                    "log_start_offset": -1,
                    "partition_max_bytes": 2**20,
                }
                topics.setdefault(topic_id, []).append(partition)
            values = {
                "max_wait": wait_ms,
                "min_bytes": 1,
                "max_bytes": 50 * 2**20,
                "isolation_level": 0,
                "session_id": 0,
                "session_epoch": -1,
                "topics": [{"topic_id": t, "partitions": p} for t, p in topics.items()],
                "forgotten_topics_data": [],
                "rack_id": "",
            }
            body = encode_request(ApiKey.FETCH, 13, values)
            return lambda: self.send(ApiKey.FETCH, 13, body)

        ids = self.controller.image.topic_ids
        here = [(ids[topic], i) for topic, indexes in self.all_partitions() for i in indexes]
        yield "Fetch of half of the partitions, with records", fetch(0, 500, here[: len(here) // 2])
        yield "Fetch of all partitions, a long poll", fetch(2, 500, here)
        nowhere = [(UUID(int=1 + number), 0) for number in range(self.named)]
        yield f"Fetch naming {self.named} unknown topics", fetch(0, 500, nowhere)
        most = [(UUID(int=1), number) for number in range(100_000)]
        yield "Fetch naming 100,000 partitions", fetch(0, 500, most)

    def _admin(self) -> Iterator[tuple[str, Work]]:
        names = [f"no-{number}" for number in range(self.named)]
        creatable = {"num_partitions": 1, "replication_factor": 9, "assignments": [], "configs": []}
        created = {
            "topics": [{"name": name, **creatable} for name in names],
            "timeout": 1000,
            "validate_only": True,
        }
        text = f"CreateTopics, {self.named} that are refused"
        yield text, lambda: self.ask(ApiKey.CREATE_TOPICS, created)
        deleted = {"topics": [{"name": n, "topic_id": None} for n in names], "timeout": 1000}
        text = f"DeleteTopics of {self.named} unknown ones"
        yield text, lambda: self.ask(ApiKey.DELETE_TOPICS, deleted)
        names = names[: self.named // 2 - 1]  # each is a topic and a partition
        elected = {
            "election_type": 0,
            "topic_partitions": [{"topic": n, "partitions": [0]} for n in names],
            "timeout": 1000,
        }
        text = f"ElectLeaders of {len(names)} unknown ones"
        yield text, lambda: self.ask(ApiKey.ELECT_LEADERS, elected)
        moved = [
            {"name": n, "partitions": [{"partition_index": 0, "replicas": None}]} for n in names
        ]
        text = f"AlterPartitionReassignments of {len(names)} unknown ones"
        values = {"timeout": 1000, "topics": moved, "allow_replication_factor_change": True}
        yield text, lambda: self.ask(ApiKey.ALTER_PARTITION_REASSIGNMENTS, values)


async def told(name: str, work: Work, only: str) -> None:
    if only not in name:
        return
    gc.collect()
    gc.disable()
    began_s = time.monotonic()
    with nothing_holds_the_loop(held_s_max=1e9) as longest:
        failed = ""
        try:
            await work()
        except Exception as error:  # noqa: BLE001 - whatever comes is told
            failed = f"  ({type(error).__name__}: {error})"
    gc.enable()
    took_ms, held_ms = (time.monotonic() - began_s) * 1e3, longest.cpu_s * 1e3
    whose = longest.callback[:90] if held_ms > 20 else ""
    print(f"| {name} | {held_ms:.0f} | {took_ms:.0f} |{failed} {whose}", flush=True)


async def run(arguments: argparse.Namespace) -> None:
    with TemporaryDirectory(dir=arguments.directory) as directory:
        bench = Bench(Path(directory), arguments.partitions, arguments.named)
        await bench.start()
        count = arguments.partitions
        print("| what | held for at most, ms | took, ms |\n|---|---|---|")
        await told(f"{count} partitions created", bench.created, "")
        for name, work in bench.requests():
            await told(name, work, arguments.only)
        await told(f"{count} partitions in another term", bench.new_terms, arguments.only)
        await told(f"{count} partitions follow another broker", bench.all_follow, arguments.only)
        await told(f"{count} partitions lead again", bench.all_lead, arguments.only)
        await told(f"{count} partitions deleted", bench.dropped, arguments.only)
        await bench.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--partitions", type=int, default=10_000)
    parser.add_argument("--named", type=int, default=20_000)
    parser.add_argument("--directory", default=None, help="where the logs are")
    parser.add_argument("--only", default="", help="what has this in its name")
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
