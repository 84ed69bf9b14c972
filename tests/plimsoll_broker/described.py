"""An image worth describing, and its handlers without a network."""

from uuid import UUID

from immutables import Map

from plimsoll_broker.handlers.cluster_view import ClusterView, ImageWatch
from plimsoll_broker.handlers.routes import admin_handlers
from plimsoll_broker.server.dispatch import RequestContext
from plimsoll_core.cluster.image_indexes import move_hosted
from plimsoll_core.cluster.model import (
    Broker,
    ClusterImage,
    Endpoint,
    Partition,
    PartitionKey,
    Topic,
)
from plimsoll_core.ids import BrokerEpoch, BrokerId, LeaderEpoch, PartitionEpoch
from plimsoll_wire.api_versions import SUPPORTED
from plimsoll_wire.messages import decode_response, encode_request

CLUSTER_ID = UUID("11111111-2222-3333-4444-555555555555")
ORDERS = UUID("12345678-1234-5678-1234-567812345678")
PAYMENTS = UUID("22345678-1234-5678-1234-567812345678")
MISSING = UUID("ffffffff-ffff-5678-1234-567812345678")


def a_broker(broker_id, *, fenced=False, listener="PLAINTEXT"):
    return Broker(
        id=BrokerId(broker_id),
        broker_epoch=BrokerEpoch(broker_id),
        incarnation_id=UUID(int=broker_id + 1),
        directory_ids=(UUID(int=broker_id + 100),),
        endpoints=(Endpoint(name=listener, host=f"host-{broker_id}", port=9092),),
        rack=f"rack-{broker_id}",
        pod_uid=None,
        fenced=fenced,
        shutting_down=False,
    )


def a_partition(topic_id, index, leader, **fields):
    values = {
        "topic_id": topic_id,
        "index": index,
        "replicas": (BrokerId(0), BrokerId(1), BrokerId(2)),
        "isr": (BrokerId(0), BrokerId(1)),
        "leader": None if leader is None else BrokerId(leader),
        "leader_epoch": LeaderEpoch(4),
        "partition_epoch": PartitionEpoch(9),
        "min_isr": 2,
    }
    return Partition(**{**values, **fields})


def an_image(*brokers, topics=("orders", "payments")):
    """Broker 2 is fenced; payments-1 has no leader."""
    brokers = brokers or (a_broker(0), a_broker(1), a_broker(2, fenced=True))
    ids = {"orders": ORDERS, "payments": PAYMENTS}
    partitions = {
        "orders": [a_partition(ORDERS, index, index % 2) for index in range(3)],
        "payments": [
            a_partition(PAYMENTS, 0, 0),
            a_partition(PAYMENTS, 1, None, isr=(), elr=(BrokerId(1),), last_known_elr=()),
        ],
    }
    keys = [PartitionKey(each.topic_id, each.index) for name in topics for each in partitions[name]]
    return ClusterImage(
        cluster_id=CLUSTER_ID,
        name="main",
        metadata_version=2,
        brokers=Map({broker.id: broker for broker in brokers}),
        topics=Map(
            {
                ids[name]: Topic(
                    id=ids[name],
                    name=name,
                    partitions=len(partitions[name]),
                    replication_factor=3,
                    min_isr=2,
                    configs=Map({"retention.ms": "1000"}),
                )
                for name in topics
            }
        ),
        topic_ids=Map({name: ids[name] for name in topics}),
        partitions=Map(zip(keys, (p for name in topics for p in partitions[name]), strict=True)),
        hosted=move_hosted(Map(), {}, {BrokerId(each): keys for each in range(3) if keys}),
    )


class Harness:
    def __init__(self, image=None, **configs):
        self.watch = ImageWatch(image or an_image())
        self.commands = []
        self.topic_defaults = None
        self.lost_leaders = {}
        self.answer = None
        view = ClusterView(
            broker_id=BrokerId(1),
            watch=self.watch,
            command=self.command,
            configs={"log.retention.ms": "5000", "num.io.threads": "8", **configs},
            topic_defaults=lambda: self.topic_defaults,
            lost_leaders=lambda: self.lost_leaders,
        )
        self.handlers = admin_handlers(view)

    async def command(self, request, timeout_ms):
        self.commands.append((request, timeout_ms))
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer(request) if callable(self.answer) else self.answer

    def ask(self, key, version, values):
        body = bytearray(encode_request(key, version, values))
        context = RequestContext(key, version, 1, memoryview(body))
        reply = self.handlers[key](context)
        if isinstance(reply, bytes):
            return decode_response(key, version, reply)

        async def later():
            return decode_response(key, version, await reply)

        return later()


def versions(key):
    return range(SUPPORTED[key].first, SUPPORTED[key].last + 1)
