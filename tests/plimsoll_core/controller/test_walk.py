"""Random walks over everything a controller can be asked, with crashes between records."""

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll_core.cluster.image import apply_all
from plimsoll_core.cluster.image_encoding import decode_image, encode_image
from plimsoll_core.cluster.model import ReassignmentObject, TopicObject
from plimsoll_core.cluster.topic_configs import UNCLEAN_RECOVERY
from plimsoll_core.errors import Reason
from plimsoll_core.messages.brokers import (
    SetLeaving,
    SettleNewcomers,
    UnregisterBroker,
    VolumeGone,
)
from plimsoll_core.messages.elections import (
    ElectionKind,
    ElectLeaders,
    NamedLeader,
    NameLeaders,
    PartitionName,
)
from plimsoll_core.messages.moves import (
    AlterReassignments,
    CopySize,
    LimitMovement,
    PartitionTarget,
    ReassignmentObjectGone,
    ReportCopies,
    RunReassignment,
    TopicMove,
)
from plimsoll_core.messages.requests import (
    AllocateProducerIds,
    BrokerProvenDead,
    CreateTopics,
    DeleteTopics,
    DetachTopic,
    NewTopic,
    Refused,
    Request,
    SetMembers,
    Tick,
    TopicObjectGone,
)
from plimsoll_core.messages.topics import (
    AddPartitions,
    AlterTopicConfigs,
    ConfigChange,
    TopicConfigChanges,
    TopicGrowth,
)

BROKERS = st.integers(0, 4)
BITS = st.integers(0, 255)
STRATEGIES = ("Balanced", "Proactive", "Manual")


def on_registered(world: Any, broker: int, make: Callable[[int], Request]) -> Request | None:
    return make(world.image.brokers[broker].broker_epoch) if broker in world.image.brokers else None


def heartbeat(world: Any, broker: int, bits: int) -> Request | None:
    """Sometimes after long enough for any back-off to be over."""
    world.now_ms += 60_000 if bits % 3 == 0 else 0
    return on_registered(
        world,
        broker,
        lambda _: world.heartbeat(
            broker,
            applied=0 if bits % 16 == 15 else None,
            want_fence=bits % 8 == 7,
            want_shutdown=bits % 5 == 4,
        ),
    )


def proven_dead(world: Any, broker: int, bits: int) -> Request | None:
    return on_registered(
        world,
        broker,
        lambda epoch: BrokerProvenDead(
            broker_id=broker, broker_epoch=epoch - bits % 2, evidence="its listener refuses"
        ),
    )


def alter(world: Any, broker: int, bits: int) -> Request | None:
    """A proposal of the true leader, sometimes stale, for any subset of the brokers."""
    if not world.image.partitions:
        return None
    keys = sorted(world.image.partitions)
    p = world.image.partitions[keys[bits % len(keys)]]
    if p.leader is None:
        return None
    isr = sorted({p.leader, *(r for n, r in enumerate(p.replicas) if bits >> n & 1)})
    name = world.image.topics[p.topic_id].name
    if name != "orders":
        return None
    stale = 1 if broker == 4 else 0
    return world.proposal(isr, p.index, partition_epoch=p.partition_epoch - stale)


def create(world: Any, broker: int, bits: int) -> Request | None:
    factor = 1 + bits % 3
    topic = NewTopic(
        name=f"client-{broker}",
        partitions=1 + bits % 4,
        replication_factor=factor,
        configs={"min.insync.replicas": str(1 + bits % factor)},
    )
    return CreateTopics(topics=(topic,), validate_only=bits > 250)


def declare(world: Any, broker: int, bits: int) -> Request | None:
    return world.declaration(
        partitions=1 + bits % 9,
        replication_factor=2 + bits % 2 if bits % 5 else 1 + broker,
        min_isr=1 + bits % 3,
        strategy="Blocked" if bits % 2 else "RoundRobin",
        configs={"retention.ms": str(bits)}
        if bits > 200
        else {UNCLEAN_RECOVERY: STRATEGIES[bits % 3]},
        deletion_policy="Retain" if bits % 7 == 6 else "Delete",
    )


def gone(world: Any, broker: int, bits: int) -> Request | None:
    return TopicObjectGone(
        object=TopicObject(namespace="shop", name="orders", uid="uid-of-orders"),
        server_now_ms=world.now_ms,
        grace_ms=bits * 100,
        removals_per_hour_max=broker,
    )


def detach(world: Any, broker: int, bits: int) -> Request | None:
    return DetachTopic(object=TopicObject(namespace="shop", name="orders", uid="uid-of-orders"))


def members(world: Any, broker: int, bits: int) -> Request | None:
    return SetMembers(broker_ids=(0, 1, 2, broker) if bits % 4 else (0, 1, 2))


def leaving(world: Any, broker: int, bits: int) -> Request | None:
    return SetLeaving(broker_ids=tuple(n for n in range(6) if bits >> n & 1 and n != broker))


def unregister(world: Any, broker: int, bits: int) -> Request | None:
    if bits % 8 == 7:
        return SettleNewcomers(broker_ids=(broker,))
    if bits % 8 == 6:
        return VolumeGone(pvc_uid=f"pvc-{broker}")
    pvc_uid = f"pvc-{broker}" if bits % 3 == 0 else None
    return on_registered(
        world,
        broker,
        lambda epoch: UnregisterBroker(broker_id=broker, broker_epoch=epoch, pvc_uid=pvc_uid),
    )


def producer_ids(world: Any, broker: int, bits: int) -> Request | None:
    return on_registered(
        world, broker, lambda epoch: AllocateProducerIds(broker_id=broker, broker_epoch=epoch)
    )


def delete(world: Any, broker: int, bits: int) -> Request | None:
    return DeleteTopics(names=(f"client-{broker}",))


def alter_configs(world: Any, broker: int, bits: int) -> Request | None:
    """Of a client's topic, or of one that an object declares, or that is not there."""
    name = "orders" if bits % 8 == 7 else f"client-{broker}"
    min_isr = ConfigChange(name="min.insync.replicas", value=str(bits % 4))
    if bits % 3 == 0:
        min_isr = ConfigChange(name="min.insync.replicas", operation="Delete")
    changes = (min_isr, ConfigChange(name="flush.ms", value=str(bits)))
    wish = TopicConfigChanges(topic=name, changes=changes, replace=bool(bits & 16))
    return AlterTopicConfigs(topics=(wish,), validate_only=bits % 16 == 14)


def grow_client_topic(world: Any, broker: int, bits: int) -> Request | None:
    name = "orders" if bits % 8 == 7 else f"client-{broker}"
    wish = TopicGrowth(topic=name, partitions=bits % 6)
    return AddPartitions(topics=(wish,), validate_only=bits % 16 == 14)


def tell(world: Any, broker: int, bits: int) -> Request | None:
    """What a replica holds, or held; sometimes about an old term or from an old lifetime."""
    keys = sorted(k for k, p in world.image.partitions.items() if bits % 4 == 3 or not p.leader)
    if not keys or broker not in world.image.brokers:
        return None
    key = keys[bits % len(keys)]
    name = world.image.topics[key.topic_id].name
    log = (bits % 3, bits % 50)
    return world.report(broker, log, key.index, name=name, stale=int(bits % 16 == 15))


def elect(world: Any, broker: int, bits: int) -> Request | None:
    """Of either kind, for all or for one that may not exist."""
    one = (PartitionName(topic=f"client-{broker}" if bits % 4 else "orders", index=bits % 5),)
    kind: ElectionKind = "Unclean" if bits % 2 else "Preferred"
    return ElectLeaders(kind=kind, partitions=one if bits % 3 else None)


def name_leaders(world: Any, broker: int, bits: int) -> Request | None:
    """For one partition, or for all of them; sometimes about another term."""
    topic_id = world.image.topic_ids.get("orders")
    count = 0 if topic_id is None else world.image.topics[topic_id].partitions
    leaders = tuple(
        NamedLeader(
            partition=index,
            leader=broker,
            at_leader_epoch=world.p(index).leader_epoch - (bits % 8 == 7),
        )
        for index in range(count)
        if bits % 2 or index == bits % 7
    )
    holder = TopicObject(namespace="shop", name="orders", uid="uid-of-orders")
    return NameLeaders(object=holder, leaders=leaders)


def _row(broker: int, bits: int) -> tuple[int, ...]:
    """Any brokers in any order, also none, or one that there is not."""
    chosen = [n for n in range(6) if bits >> n & 1][: 1 + bits % 4]
    return tuple(chosen[broker % max(len(chosen), 1) :] + chosen[: broker % max(len(chosen), 1)])


def reassign(world: Any, broker: int, bits: int) -> Request | None:
    """A client's targets and cancels, for partitions that move and for others."""
    names = sorted(world.image.topic_ids)
    name = names[bits % len(names)] if names else "none"
    targets = tuple(
        PartitionTarget(
            topic=name, index=index, replicas=None if bits % 3 == 0 else _row(broker, bits + index)
        )
        for index in range(1 + bits % 3)
    )
    return AlterReassignments(targets=targets, allow_factor_change=bits % 4 > 0)


def run_object(world: Any, broker: int, bits: int) -> Request | None:
    """One of four Reassignments, each with one spec."""
    number = bits % 4
    moves = (
        (TopicMove(topic="orders", away_from=(broker,), replan=True),),
        (TopicMove(topic="orders", partitions=(0, 1), replicas=(1, 2, 3)),),
        (TopicMove(topic="client-1", replication_factor=3, replan=True),),
        (TopicMove(topic="client-2", away_from=(0,)), TopicMove(topic="orders", away_from=(3,))),
    )
    return RunReassignment(
        object=_object(number),
        moves=moves[number],
        paused=bits > 240,
        cancelled=160 < bits < 200,
        wall_ms=world.now_ms,
    )


def _object(number: int) -> ReassignmentObject:
    return ReassignmentObject(namespace="kafka", name=f"move-{number}", uid=f"uid-{number}")


def object_gone(world: Any, broker: int, bits: int) -> Request | None:
    return ReassignmentObjectGone(object=_object(bits % 4))


def movement(world: Any, broker: int, bits: int) -> Request | None:
    if bits % 2:
        return LimitMovement(bytes_per_second=bits)
    keys = sorted(world.image.partitions)
    copies = tuple(CopySize(topic_id=key.topic_id, index=key.index, size=bits) for key in keys)
    return on_registered(
        world,
        broker,
        lambda epoch: ReportCopies(broker_id=broker, broker_epoch=epoch, copies=copies),
    )


def tick(world: Any, broker: int, bits: int) -> Request | None:
    world.now_ms += bits * 40
    return Tick(late_ms=bits if broker == 4 else 0)


MAKERS = (
    heartbeat,
    heartbeat,
    heartbeat,
    heartbeat,
    tick,
    proven_dead,
    alter,
    alter,
    alter,
    tell,
    tell,
    tell,
    elect,
    name_leaders,
    create,
    declare,
    delete,
    alter_configs,
    grow_client_topic,
    gone,
    detach,
    members,
    members,
    leaving,
    unregister,
    unregister,
    producer_ids,
    reassign,
    reassign,
    run_object,
    run_object,
    object_gone,
    movement,
)


def start(world: Any, broker: int, bits: int, crash: int | None) -> None:
    """A new process, on its own disk or on another; mostly until it is unfenced again."""
    other_disk = {"directory_ids": (UUID(int=0xE0 + broker),)} if bits % 32 == 31 else {}
    world.register(broker, clean=bits % 2 == 0, volume_is_empty=bits % 8 == 7, **other_disk)
    if broker in world.image.brokers and bits % 4:
        world.now_ms += 60_000
        world.ask(world.heartbeat(broker), crash_after=crash)


def step(world: Any, move: tuple[int, int, int, int | None]) -> None:
    kind, broker, bits, crash = move
    if kind == len(MAKERS):
        world.take_over()
    elif kind > len(MAKERS):
        start(world, broker, bits, crash)
    else:
        request = MAKERS[kind](world, broker, bits)
        if request is not None:
            answer = world.ask(request, crash_after=crash)
            if isinstance(answer, Refused):
                assert answer.reason in Reason.__members__


MOVES = st.tuples(
    st.integers(0, len(MAKERS) + 3),
    BROKERS,
    BITS,
    st.one_of(st.none(), st.none(), st.none(), st.integers(0, 3)),
)


@pytest.mark.slow
@pytest.mark.parametrize("slice_partitions", [2, 1_000])
@settings(max_examples=150)
@given(moves=st.lists(MOVES, max_size=60))
def test_random_walks_break_no_invariant(
    new_world: Callable[..., Any],
    slice_partitions: int,
    moves: list[tuple[int, int, int, int | None]],
) -> None:
    """I10–I15 and I26 hold after every record, I14 after every decision, whatever crashes."""
    world = new_world(4, slice_partitions_max=slice_partitions)
    world.declare(partitions=7)
    for move in moves:
        step(world, move)
    assert apply_all(world.empty, world.log) == world.image
    assert decode_image(encode_image(world.image)) == world.image
