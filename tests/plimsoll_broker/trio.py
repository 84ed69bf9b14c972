"""Brokers' data paths in one process: real logs, real sockets, a controller without a network.

The controller is the real `decide` with every decision committed at once; images reach the brokers
in the next turn of the loop, or when a test lets them.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from uuid import UUID, uuid4

from tests.fetch_values import fetch_values

from plimsoll_broker.handlers.delete_records import DeleteRecordsHandler
from plimsoll_broker.handlers.fetch import FetchHandler
from plimsoll_broker.handlers.list_offsets import ListOffsetsHandler, OffsetForLeaderEpochHandler
from plimsoll_broker.handlers.long_work import Aside
from plimsoll_broker.handlers.produce import ProduceHandler
from plimsoll_broker.handlers.producers import InitProducerIdHandler, ProducerIds
from plimsoll_broker.handlers.routes import replication_routes
from plimsoll_broker.node.assembly import assemble_data_path, replica_settings
from plimsoll_broker.replication.hosted_partitions import Hosted
from plimsoll_broker.replication.peer_connection import PeerConnection
from plimsoll_broker.server.client_memory import ClientMemory
from plimsoll_broker.server.client_quotas import Quotas
from plimsoll_broker.server.connection_limits import ListenerLimits
from plimsoll_broker.server.dispatch import Dispatch
from plimsoll_broker.server.listener import BrokerListener
from plimsoll_broker.storage.log_store import LogStore
from plimsoll_core.cluster.image import apply
from plimsoll_core.cluster.listener_peers import CLIENTS, REPLICATION, Port
from plimsoll_core.cluster.model import ClusterImage, Endpoint, Partition, TopicObject
from plimsoll_core.cluster.record_versions import UNDERSTOOD
from plimsoll_core.cluster.records import ControllerChanged
from plimsoll_core.controller.decide import Settings, VolatileState, decide
from plimsoll_core.ids import BrokerEpoch, BrokerId, BrokerLifetime, ControllerEpoch
from plimsoll_core.messages.requests import (
    Activated,
    Answer,
    DeclareTopic,
    Heartbeat,
    LogPosition,
    RegisterBroker,
    Request,
)
from plimsoll_core.release import RELEASE
from plimsoll_wire.api_versions import ApiKey, is_flexible
from plimsoll_wire.batches import BatchHeader, seal
from plimsoll_wire.fetch import FetchedPartition
from plimsoll_wire.headers import request_frame
from plimsoll_wire.messages import decode_response, encode_request

CLUSTER = UUID(int=0xC1)
WAIT_S = 30


def a_batch(
    records: int = 1,
    *,
    producer: tuple[int, int, int] = (-1, -1, -1),
    filler: int = 10,
    timestamp: int = 1_000,
) -> bytes:
    """A sealed batch as a producer sends it; `producer` is (id, epoch, first sequence).  The first
    record's value has `filler` bytes, those of the others have none."""
    header = BatchHeader(0, 0, -1, 2, 0, 0, records - 1, timestamp, timestamp, *producer, records)
    return seal(header, a_record(0, b"x" * filler) + b"".join(map(a_record, range(1, records))))


def a_record(offset: int, value: bytes = b"", time: int = 0) -> bytes:
    """Without key and headers."""
    body = b"\x00%b%b\x01%b%b\x00" % (varint(time), varint(offset), varint(len(value)), value)
    return varint(len(body)) + body


def varint(value: int) -> bytes:
    """Zigzag, of what is not negative."""
    left, out = value << 1, bytearray()
    while left >= 0x80:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    out.append(left)
    return bytes(out)


class Controller:
    """`command` is what a broker's data path needs of the controller client."""

    def __init__(self, metadata_version: int = 1) -> None:
        self.image = apply(
            ClusterImage(cluster_id=CLUSTER, metadata_version=metadata_version),
            ControllerChanged(cause="test", controller_epoch=ControllerEpoch(1), identity="test"),
        )
        self.soft = VolatileState()
        self.settings = Settings()
        self.now_ms = 1_000_000
        self.brokers: dict[int, Broker] = {}
        self.asked: list[Request] = []
        self.request(Activated(cluster_name="test"))

    def request(self, request: Request) -> Answer:
        self.asked.append(request)
        while True:
            decision = decide(self.image, self.soft, request, self.now_ms, self.settings)
            for record in decision.records:
                self.image = apply(self.image, record)
            if decision.records:
                for broker in self.brokers.values():
                    broker.tell()
            if decision.again is None:
                return decision.answer
            request = decision.again

    async def command(self, request: Request, timeout_ms: int = 0) -> Answer:
        await asyncio.sleep(0)
        return self.request(request)

    def create(self, name: str, *replicas: tuple[int, ...], **configs: str) -> UUID:
        self.request(
            DeclareTopic(
                object=TopicObject(namespace="test", name=name, uid=name),
                topic_name=name,
                partitions=len(replicas),
                replication_factor=len(replicas[0]),
                min_isr=min(2, len(replicas[0])),
                strategy="Explicit",
                assignment=tuple(tuple(BrokerId(b) for b in each) for each in replicas),
                configs=configs,
            )
        )
        return self.image.topic_ids[name]

    def partition(self, name: str, index: int = 0) -> Partition:
        topic_id = self.image.topic_ids[name]
        return next(
            p for p in self.image.partitions.values() if (p.topic_id, p.index) == (topic_id, index)
        )

    def heartbeat(self, broker: Broker, *, fence: bool = False) -> None:
        self.now_ms += self.settings.flap_wait_ms_max
        position = LogPosition(
            applied_offset=self.image.next_offset, nonce=None, controller_epoch=ControllerEpoch(1)
        )
        self.request(
            Heartbeat(
                broker_id=broker.id,
                broker_epoch=broker.epoch,
                position=position,
                want_fence=fence,
                metadata_versions=(1, 1),
                release="0.2.0",
            )
        )


class Link:
    """A broker's way to the controller, and the newest controller it has heard of."""

    def __init__(self, controller: Controller) -> None:
        self.controller = controller
        self.highest_epoch = controller.image.controller_epoch
        self.told: list[int] = []

    async def command(self, request: Request, timeout_ms: int = 0) -> Answer:
        return await self.controller.command(request, timeout_ms)

    def heard_of(self, epoch: ControllerEpoch) -> None:
        self.told.append(epoch)


class Broker:
    """One data path with its late."""

    limits: ListenerLimits | None = None
    memory: ClientMemory | None = None

    def __init__(self, controller: Controller, broker_id: int, directory: Path) -> None:
        self.controller = controller
        self.id = BrokerId(broker_id)
        self.directory = directory
        self.epoch = BrokerEpoch(-1)
        self.deaf = False
        """It has one listener, for all peers."""
        self.clients_port = 0
        self.replication_first = False
        """In its list of endpoints."""
        self.quotas = Quotas()
        self._image: ClusterImage | None = None
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self, *, previous: int | None = None, **configs: str) -> Broker:
        self.store = LogStore(self.directory)
        assert self.store.open() is None
        late = _Late(
            ApiKey.PRODUCE,
            ApiKey.FETCH,
            ApiKey.LIST_OFFSETS,
            ApiKey.OFFSET_FOR_LEADER_EPOCH,
            ApiKey.INIT_PRODUCER_ID,
            ApiKey.DELETE_RECORDS,
        )
        self.server = BrokerListener(
            Dispatch(late.table), self.limits, self.memory, quotas=self.quotas
        )
        own = await self.server.start("127.0.0.1", self.clients_port)
        endpoints = [Endpoint(name=CLIENTS, host="127.0.0.1", port=own)]
        followers = self.followers = _Late(
            ApiKey.FETCH,
            ApiKey.LIST_OFFSETS,
            # Only with transactions:
            ApiKey.WRITE_TXN_MARKERS,
            ApiKey.ADD_PARTITIONS_TO_TXN,
        )
        self.replication = BrokerListener(Dispatch(followers.table))
        own = await self.replication.start("127.0.0.1", 0)
        endpoints.append(Endpoint(name=REPLICATION, host="127.0.0.1", port=own))
        answer = self.controller.request(
            RegisterBroker(
                cluster_id=CLUSTER,
                broker_id=self.id,
                incarnation_id=uuid4(),
                previous_broker_epoch=None if previous is None else BrokerEpoch(previous),
                directory_ids=(UUID(int=1000 + self.id),),
                endpoints=tuple(reversed(endpoints) if self.replication_first else endpoints),
                metadata_versions=UNDERSTOOD,
                release=RELEASE,
            )
        )
        self.epoch = answer.broker_epoch  # type: ignore[union-attr]
        self.link = Link(self.controller)
        broker = BrokerLifetime(self.id, self.epoch)
        settings = replica_settings(self.id, {"replica.takes.pushes": "true"} | configs)
        self.path = assemble_data_path(broker, settings, self.store, self.link)
        self.manager = self.path.manager
        ids = ProducerIds(self.controller, broker)
        late.routes = {
            ApiKey.PRODUCE: ProduceHandler(self.manager, Aside()),
            ApiKey.FETCH: FetchHandler(self.manager, Port.CLIENTS),
            ApiKey.LIST_OFFSETS: ListOffsetsHandler(self.manager, Port.CLIENTS),
            ApiKey.OFFSET_FOR_LEADER_EPOCH: OffsetForLeaderEpochHandler(self.manager),
            ApiKey.INIT_PRODUCER_ID: InitProducerIdHandler(ids),
            ApiKey.DELETE_RECORDS: DeleteRecordsHandler(self.manager),
        }
        self.clients_routes = late.routes
        followers.routes = replication_routes(self.manager)
        begun = self.controller.image
        await self.path.start(begun)
        self._image = self.controller.image
        self.path.apply_image(begun, self._image)
        self._tasks = [asyncio.create_task(work, name=name) for name, work in self.path.tasks()]
        self._tasks.append(asyncio.create_task(self.server.failure(), name="server"))
        self._tasks.append(asyncio.create_task(self.replication.failure(), name="followers"))
        self.controller.brokers[self.id] = self
        self.controller.heartbeat(self)
        return self

    def tell(self) -> None:
        if not self.deaf:
            asyncio.get_running_loop().call_soon(self._apply)

    def _apply(self) -> None:
        old, new = self._image, self.controller.image
        if old is not new and old is not None:
            self._image = new
            self.path.apply_image(old, new)

    def hear(self) -> None:
        self.deaf = False
        self._apply()

    async def stop(self, *, clean: bool = False) -> None:
        self.controller.brokers.pop(self.id, None)
        await self.server.stop()
        await self.replication.stop()
        await self.path.close()
        failures = [t.exception() for t in self._tasks if t.done() and not t.cancelled()]
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if clean:
            self.store.close(self.epoch, self.manager.high_watermarks())
        self.store.release_lock()
        for failure in failures:
            if failure is not None:
                raise failure

    def hosted(self, name: str, index: int = 0) -> Hosted:
        hosted = self.manager.by_name(name, index)
        assert hosted is not None
        return hosted

    def bytes_of(self, name: str, index: int = 0) -> bytes:
        log = self.hosted(name, index).log
        return log.read(log.log_start_offset, 2**30, log.log_end_offset)

    async def client(self) -> Client:
        return Client(await PeerConnection.open("127.0.0.1", self.server.port, WAIT_S))


class _Late(dict):
    """Handlers that are known only after the port is: the epoch comes from registering it."""

    def __init__(self, *keys: ApiKey) -> None:
        super().__init__()
        self.routes: dict[ApiKey, object] = {}
        self.table = {key: self._route(key) for key in keys}

    def _route(self, key: ApiKey):
        return lambda context: self.routes[key](context)  # type: ignore[operator]


class Client:
    """One connection, one request at a time."""

    def __init__(self, connection: PeerConnection) -> None:
        self.connection = connection
        self._correlation_id = 0

    async def ask(self, key: ApiKey, version: int, values: dict) -> object:
        self._correlation_id += 1
        body = encode_request(key, version, values)
        frame = request_frame(key, version, self._correlation_id, "test", body)
        reply = await self.connection.request(frame, WAIT_S)
        return decode_response(key, version, reply[5:] if is_flexible(key, version) else reply[4:])

    async def produce(
        self,
        topic: str,
        records: bytes,
        *,
        acks: int = -1,
        index: int = 0,
        timeout_ms: int = WAIT_S * 1_000,
    ) -> tuple[int, int]:
        """Error code and base offset."""
        reply = await self.ask(
            ApiKey.PRODUCE,
            9,
            {
                "transactional_id": None,
                "acks": acks,
                "timeout": timeout_ms,
                "topic_data": [
                    {"name": topic, "partition_data": [{"index": index, "records": records}]}
                ],
            },
        )
        partition = reply.responses[0].partition_responses[0]  # type: ignore[attr-defined]
        return int(partition.error_code), partition.base_offset

    async def fetch(
        self, topic: str, offset: int, *, index: int = 0, wait_ms: int = 0, epoch: int = -1
    ) -> FetchedPartition:
        values = fetch_values(topic, (index,), offset, epoch=epoch, max_wait=wait_ms)
        reply = await self.ask(ApiKey.FETCH, 12, values)
        one = reply.responses[0].partitions[0]  # type: ignore[attr-defined]
        return FetchedPartition(
            one.partition_index,
            int(one.error_code),
            one.high_watermark,
            one.log_start_offset,
            one.records or b"",
        )

    async def latest(self, topic: str, timestamp: int = -1, index: int = 0) -> tuple[int, int]:
        """Error code and offset."""
        reply = await self.ask(
            ApiKey.LIST_OFFSETS,
            7,
            {
                "replica_id": -1,
                "isolation_level": 0,
                "topics": [
                    {
                        "name": topic,
                        "partitions": [
                            {
                                "partition_index": index,
                                "current_leader_epoch": -1,
                                "timestamp": timestamp,
                            }
                        ],
                    }
                ],
            },
        )
        one = reply.topics[0].partitions[0]  # type: ignore[attr-defined]
        return int(one.error_code), one.offset
